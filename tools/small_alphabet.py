"""The characters that the embedded base `small` can read."""

DIGITS = "0123456789"
LATIN = "abcdefghijklmnopqrstuvwxyz"
LATIN_MARKED = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿāăąćċčďđēėęěğģħīįıĵķĺļľłńņňőœŕřśşšţťũūŭůűųŵŷźżžſßșțẽḿ"
CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёєіїґўђѓѕјљњћќџѝѐѣѳѵѫѧ"
PUNCTUATION = ".,:;!?-–—…«»‹›\"'’‘“”„()[]{}<>/\\|&%§№+±=×÷*#@_°^~`€$£¬¶†•⁊½¼¾"
SUPERSCRIPTS = "ᵃᵇᵈᵉˡᵐⁿᵒʳˢᵗ²³"

_LETTERS = LATIN + LATIN_MARKED + CYRILLIC
_CAPITALS = "".join(dict.fromkeys(letter.upper() for letter in _LETTERS if len(letter.upper()) == 1))

CHARACTERS = list(dict.fromkeys(" " + DIGITS + PUNCTUATION + _CAPITALS + _LETTERS + SUPERSCRIPTS))
"""Every character, in the order of the head's classes; the blank is before the first."""
