"""The kinds of objects, one module each: everything that is true of one kind stands in its module.

``resource`` has the names on the wire, ``kind`` what else a kind says, ``registry`` the list.
"""
