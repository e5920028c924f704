"""The shapes of objects: each field is declared once, with all that is true of it.

``fields`` has the vocabulary, the other modules the shapes that several kinds share; what one kind
alone has stands in its module below ``livesize.api.kinds``. Checks, patches, server-side apply,
protobuf and OpenAPI read these declarations (ADR 0090).
"""
