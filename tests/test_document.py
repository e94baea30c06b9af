"""Lines know the types of their regions."""

import pytest

from dsocr.document import Line, Region


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param("MainZone", True, id="the same"),
        pytest.param("MainZone:column#1", True, id="a subtype of SegmOnto and a number"),
        pytest.param("MainZone#2", True, id="a number"),
        pytest.param("MarginTextZone", False, id="another type"),
        pytest.param("MarginTextZone:Note", True, id="a subtype that is named"),
        pytest.param("MarginTextZone:seal", False, id="another subtype"),
        pytest.param("", True, id="unknown"),
    ],
)
def test_types_are_compared_without_additions(kind: str, expected: bool) -> None:
    assert Line("", "p#1", region=Region("r", kind=kind)).is_in({"mainzone", "margintextzone:note"}) is expected
