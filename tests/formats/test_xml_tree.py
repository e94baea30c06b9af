"""A file parsed and written again is the same, and whatever is moved in it keeps its bytes."""

from hypothesis import given
from hypothesis import strategies as st

from dsocr.formats.xml_tree import Element, XmlTree

names = st.sampled_from(["TextLine", "pc:Word", "x"])
texts = st.sampled_from(["", " ", "\n  ", "текст &amp; &#8470;", "<!-- a > b -->", "<![CDATA[<x>]]>", "<?pi x?>"])
attributes = st.sampled_from(["", " id='a\"b'", ' custom = "x > {y}"', '\n\tid="&lt;№"'])


def written(name: str, attribute: str, parts: list[str], *, is_empty: bool) -> str:
    return f"<{name}{attribute} />" if is_empty and not parts else f"<{name}{attribute}>{''.join(parts)}</{name} >"


elements = st.recursive(
    st.builds(written, names, attributes, st.lists(texts, max_size=1), is_empty=st.booleans()),
    lambda inner: st.builds(
        written, names, attributes, st.lists(st.one_of(texts, inner), max_size=5), is_empty=st.booleans()
    ),
    max_leaves=12,
)
files = st.builds(
    "<?xml version='1.0'?>\n<!-- made by hand --><pc:r xmlns:pc='urn:x' >{}</pc:r>\n".format,
    st.lists(st.one_of(texts, elements), max_size=6).map("".join),
)


@given(files)
def test_untouched_elements_keep_their_bytes(content: str) -> None:
    tree = XmlTree(content.encode())
    assert tree.content() == content.encode()
    assert tree.namespace == "urn:x"
    children = tree.root.children
    before = [str(child) for child in children]
    for child in children[::2]:
        tree.root.remove(child)
        tree.root.insert(child, after=tree.root.children)
    tree.root.insert(tree.new("New", {"id": 'a"<', "no": None}))
    assert [str(child) for child in tree.root.children[1:]] == before[1::2] + before[::2]
    again = XmlTree(tree.content())
    assert [str(child) for child in again.root.children] == [str(child) for child in tree.root.children]
    assert again.root.children[0].attributes == {"id": 'a"<'}


@given(st.dictionaries(st.sampled_from("abc"), st.text(st.characters(codec="ascii", min_codepoint=32), min_size=1)))
def test_attributes_are_read_as_they_were_set(values: dict[str, str]) -> None:
    element = Element("x", "", "<x  b='old' kept=\"&quot;\"/>")
    element.set({**values})
    assert element.attributes == {"b": "old", "kept": '"', **values}
    element.set(dict.fromkeys("abc"))
    assert element.tag == '<x kept="&quot;"/>'
