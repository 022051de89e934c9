"""What a page was written from."""

import json
import re


def data_in(page: str) -> dict:
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1]
    return json.loads(text)
