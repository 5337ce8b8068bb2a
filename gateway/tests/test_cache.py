"""The cache stores values that JSON can represent, and raises an error for others."""

import pytest
from django.core.cache import cache
from django.utils.translation import gettext_lazy

from web.admission import Credential


def test_a_value_comes_back_as_it_was_kept_or_is_refused() -> None:
    kept = {"title": "Figures", "rows": [1, None, "x"]}
    cache.set("kept", kept, 60)
    assert cache.get("kept") == kept
    cache.set("lazy", [gettext_lazy("Search")], 60)
    assert cache.get("lazy") == ["Search"]
    with pytest.raises(TypeError):
        cache.set("named", [Credential("hush", None)], 60)
