"""Small pieces of XML: amounts with their units, texts, and what has to be there."""

from __future__ import annotations

from xml.etree import ElementTree as ET

UNITS = {"b": 1, "bytes": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def add_text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def add_kib(parent: ET.Element, tag: str, amount_bytes: int, **attributes: str) -> None:
    assert amount_bytes % 1024 == 0, f"{tag}: {amount_bytes} is not whole KiB"
    add_text(parent, tag, str(amount_bytes // 1024), unit="KiB", **attributes)


def size_bytes(element: ET.Element) -> int:
    return int(element.text or 0) * UNITS[element.get("unit", "KiB")]


def required(root: ET.Element, path: str) -> ET.Element:
    found = root.find(path)
    if found is None:
        raise ValueError(f"the domain has no {path}")
    return found


def required_text(root: ET.Element, path: str) -> str:
    return required(root, path).text or ""
