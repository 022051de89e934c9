"""PJRT's C interface, as far as we call it.

A plugin is a shared library with a function GetPjrtApi, which gives a table: its size in bytes, a list of extensions, a version,
and pointers to functions. Every function takes one structure that begins with its own size and an extension, and gives an error or
null. Tables and structures only grow at their ends, so a plugin older or newer than these declarations is called in the same way.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_void_p

# Places in the table of functions.
FUNCTIONS = {
    "Error_Destroy": 0, "Error_Message": 1, "Plugin_Initialize": 3, "Event_Destroy": 5, "Event_Await": 8, "Client_Create": 10,
    "Client_Destroy": 11, "Client_PlatformName": 12, "Client_AddressableDevices": 16, "Client_Compile": 20,
    "Client_BufferFromHostBuffer": 22, "Executable_Destroy": 40, "Executable_NumOutputs": 44, "LoadedExecutable_Destroy": 50,
    "LoadedExecutable_GetExecutable": 51, "LoadedExecutable_Execute": 55, "Buffer_Destroy": 58, "Buffer_ElementType": 59,
    "Buffer_Dimensions": 60, "Buffer_ToHostBuffer": 70, "TopologyDescription_Create": 82, "TopologyDescription_Destroy": 83,
    "Compile": 89,
}  # fmt: skip
HEADER = 8 + 8 + 24  # bytes of the table before its functions: size, extensions, version

# Numbers of element types, by the names of ours.
TYPES = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9, "float16": 10,
    "float32": 11, "float64": 12, "bfloat16": 13, "complex64": 14, "complex128": 15,
}  # fmt: skip
UNTIL_TRANSFERRED = 1  # how long the plugin may look at memory of ours: until an event says that it has it


def structure(name: str, *fields) -> type[Structure]:
    """A structure of arguments: its size and an extension come first."""
    return type(name, (Structure,), {"_fields_": [("size", c_size_t), ("extension", c_void_p), *fields]})


def _of(name: str, *outs) -> type[Structure]:
    return structure(name, ("of", c_void_p), *outs)


Nothing = structure("Nothing")
Object = _of("Object")  # to destroy, to await
Text = _of("Text", ("text", c_void_p), ("length", c_size_t))
Count = _of("Count", ("count", c_size_t))
Inner = _of("Inner", ("inner", c_void_p))
ListOf = _of("ListOf", ("items", POINTER(c_void_p)), ("count", c_size_t))
Sizes = _of("Sizes", ("sizes", POINTER(c_int64)), ("count", c_size_t))
ElementType = _of("ElementType", ("type", c_int))
CreateClient = structure(
    "CreateClient", ("options", c_void_p), ("num_options", c_size_t), ("get", c_void_p), ("get_user", c_void_p), ("put", c_void_p),
    ("put_user", c_void_p), ("client", c_void_p), ("try_get", c_void_p), ("try_get_user", c_void_p),
)  # fmt: skip
Program = structure(
    "Program", ("code", c_char_p), ("code_size", c_size_t), ("format", c_char_p), ("format_size", c_size_t)
)
Compile = _of(
    "Compile",
    ("program", POINTER(Program)),
    ("options", c_char_p),
    ("options_size", c_size_t),
    ("executable", c_void_p),
)
CompileAhead = _of(
    "CompileAhead", ("program", POINTER(Program)), ("options", c_char_p), ("options_size", c_size_t), ("client", c_void_p),
    ("executable", c_void_p),
)  # fmt: skip
FromHost = _of(
    "FromHost", ("data", c_void_p), ("type", c_int), ("sizes", POINTER(c_int64)), ("num_sizes", c_size_t),
    ("strides", POINTER(c_int64)), ("num_strides", c_size_t), ("semantics", c_int), ("device", c_void_p), ("memory", c_void_p),
    ("layout", c_void_p), ("done", c_void_p), ("buffer", c_void_p),
)  # fmt: skip
ToHost = _of("ToHost", ("layout", c_void_p), ("data", c_void_p), ("bytes", c_size_t), ("event", c_void_p))
ExecuteOptions = structure(
    "ExecuteOptions", ("send", c_void_p), ("receive", c_void_p), ("num_send", c_size_t), ("num_receive", c_size_t),
    ("launch", c_int), ("not_donated", POINTER(c_int64)), ("num_not_donated", c_size_t), ("context", c_void_p),
    ("location", c_char_p), ("num_tasks", c_size_t), ("tasks", c_void_p), ("incarnations", c_void_p),
)  # fmt: skip
Execute = _of(
    "Execute", ("options", POINTER(ExecuteOptions)), ("arguments", POINTER(POINTER(c_void_p))), ("num_devices", c_size_t),
    ("num_arguments", c_size_t), ("outputs", POINTER(POINTER(c_void_p))), ("events", POINTER(c_void_p)), ("device", c_void_p),
)  # fmt: skip
CreateTopology = structure(
    "CreateTopology", ("name", c_char_p), ("name_size", c_size_t), ("options", c_void_p), ("num_options", c_size_t),
    ("topology", c_void_p),
)  # fmt: skip


def made(kind: type[Structure], **fields) -> Structure:
    """A structure of arguments with its size filled in."""
    result = kind(**fields)
    result.size = ctypes.sizeof(kind)
    return result
