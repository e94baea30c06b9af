"""The server's paths as a page to read, made of its OpenAPI description; it has no scripts and fetches nothing."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 20%, transparent); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
section { border-top: 1px solid var(--line); }
h2 { font: 600 1.1rem ui-monospace, monospace; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; }
td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""

_EXAMPLES = {
    "/v1/transcriptions": "curl --data-binary @line.png {address}/v1/transcriptions",
    "/v1/chat/completions": (
        "client = openai.OpenAI(base_url='{address}/v1', api_key='TOKEN')\n"
        "image = 'data:image/png;base64,' + base64.b64encode(open('line.png', 'rb').read()).decode()\n"
        "part = {{'type': 'image_url', 'image_url': {{'url': image}}}}\n"
        "answer = client.chat.completions.create(model='{model}', messages=[{{'role': 'user', 'content': [part]}}])\n"
        "print(answer.choices[0].message.content)"
    ),
}


def manual(description: Mapping[str, Any], models: Sequence[str]) -> str:
    """A page for an OpenAPI description and the names of what can read."""
    sections = [
        _section(method, path, operation, models[0])
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    ]
    named = ", ".join(f"<code>{escape(name)}</code>" for name in models)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>dsocr</title><style>{_STYLE}</style></head>"
        f"<body><h1>dsocr {escape(description['info']['version'])}</h1>"
        f'<p>Models: {named}. For programs: <a href="/openapi.json">openapi.json</a>.</p>'
        f"{''.join(sections)}</body></html>"
    )


def _section(method: str, path: str, operation: Mapping[str, Any], model: str) -> str:
    example = _EXAMPLES.get(path, "").format(address="http://127.0.0.1:8000", model=model)
    answers = "".join(
        f"<tr><td>{status}</td><td>{escape(answer.get('description', ''))}</td></tr>"
        for status, answer in sorted(operation["responses"].items())
    )
    return (
        f"<section><h2>{method.upper()} {escape(path)}</h2><p>{escape(operation.get('description', ''))}</p>"
        f"{f'<pre>{escape(example)}</pre>' if example else ''}<table>{answers}</table></section>"
    )
