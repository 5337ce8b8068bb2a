"""What the tests have generated is kept until a source changes."""

from pathlib import Path

import pytest

from tests.e2e.sdks import homes


def test_a_folder_is_made_again_when_a_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "_KEPT", tmp_path / "kept")
    source = tmp_path / "openapi.json"

    def copy(folder: Path) -> None:
        (folder / "client").write_bytes(source.read_bytes())

    def client() -> str:
        return (homes.kept("client", [source], copy) / "client").read_text()

    source.write_text("first")
    assert client() == "first"
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("it was made again"))
    assert client() == "first"
    monkeypatch.undo()
    monkeypatch.setattr(homes, "_KEPT", tmp_path / "kept")
    source.write_text("second")
    assert client() == "second"


def test_a_folder_that_could_not_be_made_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "_KEPT", tmp_path / "kept")

    def fail(folder: Path) -> None:
        raise AssertionError("the generator warns")

    for _ in range(2):
        with pytest.raises(AssertionError, match="warns"):
            homes.kept("client", [], fail)
