"""What an ONNX file holds, looked at before onnxruntime does: for files that anyone may have written.

A network has its weights in its own file and runs each node once. Tensors of an ONNX file can also name other files,
or, by a mark of onnxruntime's, addresses of memory; and nodes can hold graphs to be repeated. Both are refused.
"""

from collections.abc import Iterator

from featveil.core import FormatError

# Fields of the messages of onnx.proto that lead to tensors and graphs.
_MODEL_GRAPH, _MODEL_TRAINING, _MODEL_FUNCTION = 7, 20, 25
_GRAPH_NODE, _GRAPH_TENSOR, _GRAPH_SPARSE = 1, 5, 15
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSORS, _ATTRIBUTE_REFUSED = (5, 10), (6, 11, 22, 23)  # graphs and sparse tensors
_TENSOR_EXTERNAL = 13


def check_contents(content: bytes) -> None:
    """Raise FormatError unless `content` is an ONNX model on its own, without graphs within nodes."""
    graphs = 0
    for field, part in _fields(memoryview(content)):
        if field == _MODEL_GRAPH:
            graphs += 1
            _check_graph(part)
        elif field in (_MODEL_TRAINING, _MODEL_FUNCTION):  # functions can call each other over and over
            raise FormatError("it holds more than a network")
    if not graphs:
        raise FormatError("it holds no network")


def _check_graph(graph: memoryview) -> None:
    for field, part in _fields(graph):
        if field == _GRAPH_TENSOR:
            _check_tensor(part)
        elif field == _GRAPH_SPARSE:
            raise FormatError("it has sparse weights")
    _check_nodes(graph)


def _check_nodes(graph: memoryview) -> None:
    for field, node in _fields(graph):
        here = field == _GRAPH_NODE
        attributes = [part for number, part in _fields(node) if number == _NODE_ATTRIBUTE] if here else []
        for attribute in attributes:
            for number, value in _fields(attribute):
                if number in _ATTRIBUTE_REFUSED:
                    raise FormatError("it has a graph within a node")
                if number in _ATTRIBUTE_TENSORS:
                    _check_tensor(value)


def _check_tensor(tensor: memoryview) -> None:
    if any(field == _TENSOR_EXTERNAL for field, _ in _fields(tensor)):
        raise FormatError("its weights are in another file")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and bytes of each field of a protocol buffer; numbers come as no bytes. Raises FormatError."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key >= 2**32 or key < 8:  # others read such a field as another one
            raise FormatError("it is damaged")
        length = 0
        match key & 7:
            case 0:  # a number
                _, place = _varint(message, place)
            case 1:  # eight bytes
                length = 8
            case 2:  # a message, a text, bytes
                length, place = _varint(message, place)
            case 5:  # four bytes
                length = 4
            case _:
                raise FormatError("it is damaged")
        if place + length > len(message):
            raise FormatError("it is damaged or cut off")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """The number at `place`, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise FormatError("it is damaged or cut off")
