"""The documentation page of the server, rendered from its OpenAPI description without any script."""

from collections.abc import Mapping, Sequence
from typing import Any

from dsocr.html import render

_ADDRESS = "http://127.0.0.1:8000"
_CHAT = """\
client = openai.OpenAI(base_url='{address}/v1', api_key='TOKEN')
image = 'data:image/png;base64,' + base64.b64encode(open('line.png', 'rb').read()).decode()
part = {{'type': 'image_url', 'image_url': {{'url': image}}}}
answer = client.chat.completions.create(model='{model}', messages=[{{'role': 'user', 'content': [part]}}])
print(answer.choices[0].message.content)"""


def manual(description: Mapping[str, Any], models: Sequence[str]) -> str:
    """Render an OpenAPI description with examples that use the first of these models."""
    examples = {
        "/v1/transcriptions": f"curl --data-binary @line.png {_ADDRESS}/v1/transcriptions",
        "/v1/chat/completions": _CHAT.format(address=_ADDRESS, model=models[0]),
    }
    return render(__package__, "manual.html.jinja", description=description, models=models, examples=examples)
