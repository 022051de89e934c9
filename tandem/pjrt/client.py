"""A plugin, a client of it, and programs that it has compiled."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pathlib
import weakref

import numpy as np

from tandem.errors import DeviceError, ValueRangeError
from tandem.pjrt import api

# Names that stand for the library of an installed package: (package, file in it).
_KNOWN = {
    "tpu": ("libtpu", "libtpu.so"), "cuda": ("jax_plugins.xla_cuda13", "xla_cuda_plugin.so"),
}  # fmt: skip

# CompileOptionsProto: executable_build_options (3) with no device of its own (1: -1), one replica (4) and one partition (5).
_BUILD = bytes([0x08, *[0xFF] * 9, 1, 0x20, 1, 0x28, 1])
_ONE_DEVICE = bytes([0x1A, len(_BUILD)]) + _BUILD


class Plugin:
    """A shared library that has GetPjrtApi."""

    def __init__(self, path: str):
        self.path = path
        try:
            library = ctypes.CDLL(path)
            entry = library.GetPjrtApi
        except (OSError, AttributeError) as error:
            raise DeviceError("pjrt", f"{path} is no PJRT plugin: {error}") from None
        entry.restype = ctypes.c_void_p
        table = entry()
        if not table:
            raise DeviceError("pjrt", f"{path} gave no table of functions")
        self._table = table
        self._count = (ctypes.c_size_t.from_address(table).value - api.HEADER) // 8
        self._kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        self._functions: dict[str, object] = {}
        self.call("Plugin_Initialize", api.made(api.Nothing))

    def call(self, name: str, arguments: ctypes.Structure) -> ctypes.Structure:
        """Calls a function of the plugin; an error of its becomes one of ours."""
        error = self._function(name)(ctypes.addressof(arguments))
        if error:
            raise DeviceError("pjrt", f"{name} of {os.path.basename(self.path)} failed: {self._message(error)}")
        return arguments

    def _function(self, name: str):
        found = self._functions.get(name)
        if found is None:
            place = api.FUNCTIONS[name]
            address = None
            if place < self._count:
                address = ctypes.c_void_p.from_address(self._table + api.HEADER + 8 * place).value
            if not address:
                raise DeviceError("pjrt", f"{os.path.basename(self.path)} has no function {name}")
            found = self._functions[name] = self._kind(address)
        return found

    def _message(self, error: int) -> str:
        asked = api.made(api.Text, of=error)
        self._function("Error_Message")(ctypes.addressof(asked))
        text = ctypes.string_at(asked.text, asked.length).decode(errors="replace") if asked.text else "no message"
        self.destroy("Error_Destroy", error)
        return text

    def destroy(self, name: str, of: int):
        self._function(name)(ctypes.addressof(api.made(api.Object, of=of)))

    def wait(self, event: int | None):
        """Until what an event stands for has happened; raises what went wrong."""
        if event:
            try:
                self.call("Event_Await", api.made(api.Object, of=event))
            finally:
                self.destroy("Event_Destroy", event)


@functools.cache
def open_plugin(name: str) -> Plugin:
    """The plugin of a path, or of a known name: tpu (package libtpu), cuda (package jax-cuda13-pjrt)."""
    if name in _KNOWN:
        package, file = _KNOWN[name]
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None or not found.submodule_search_locations:
            raise DeviceError("pjrt", f"the plugin {name!r} is in the package {package!r}, which is not installed")
        path = str(pathlib.Path(found.submodule_search_locations[0]) / file)
    elif os.path.exists(name):
        path = os.path.abspath(name)
    else:
        raise ValueRangeError(
            "pjrt", f"{name!r} is no file and no known plugin", fix=f"give a path or one of {sorted(_KNOWN)}"
        )
    return Plugin(path)


class Client:
    """A plugin's devices that can be used from here."""

    def __init__(self, plugin: Plugin):
        self.plugin = plugin
        self.handle = plugin.call("Client_Create", api.made(api.CreateClient)).client
        weakref.finalize(self, plugin.destroy, "Client_Destroy", self.handle)
        asked = plugin.call("Client_PlatformName", api.made(api.Text, of=self.handle))
        self.platform = ctypes.string_at(asked.text, asked.length).decode()
        asked = plugin.call("Client_AddressableDevices", api.made(api.ListOf, of=self.handle))
        self.devices = [asked.items[i] for i in range(asked.count)]
        if not self.devices:
            raise DeviceError("pjrt", f"{plugin.path} has no device that can be used from here")

    def compile(self, text: str) -> Executable:
        """StableHLO text as a program for the first device."""
        program = _program(text)
        arguments = api.made(
            api.Compile,
            of=self.handle,
            program=ctypes.pointer(program),
            options=_ONE_DEVICE,
            options_size=len(_ONE_DEVICE),
        )
        return Executable(self, self.plugin.call("Client_Compile", arguments).executable)

    def buffer(self, array: np.ndarray, name: str) -> Buffer:
        """An array on the first device. The plugin reads it where it lies."""
        array = np.ascontiguousarray(array)
        if name not in api.TYPES:
            raise DeviceError("pjrt", f"{name} has no counterpart there")
        sizes = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        arguments = api.made(
            api.FromHost, of=self.handle, data=array.ctypes.data, type=api.TYPES[name], sizes=sizes, num_sizes=array.ndim,
            semantics=api.UNTIL_TRANSFERRED, device=self.devices[0],
        )  # fmt: skip
        self.plugin.call("Client_BufferFromHostBuffer", arguments)
        made = Buffer(self.plugin, arguments.buffer)
        self.plugin.wait(arguments.done)
        return made


class Buffer:
    """A tensor on a device of a plugin."""

    def __init__(self, plugin: Plugin, handle: int):
        self.plugin, self.handle = plugin, handle
        weakref.finalize(self, plugin.destroy, "Buffer_Destroy", handle)

    def read(self, dtype) -> np.ndarray:
        asked = self.plugin.call("Buffer_Dimensions", api.made(api.Sizes, of=self.handle))
        result = np.empty([asked.sizes[i] for i in range(asked.count)], dtype)
        arguments = api.made(api.ToHost, of=self.handle, data=result.ctypes.data, bytes=result.nbytes)
        self.plugin.call("Buffer_ToHostBuffer", arguments)
        self.plugin.wait(arguments.event)
        return result


class Executable:
    """A compiled program."""

    def __init__(self, client: Client, handle: int):
        self.client, self.handle = client, handle
        plugin = client.plugin
        weakref.finalize(self, plugin.destroy, "LoadedExecutable_Destroy", handle)
        inner = plugin.call("LoadedExecutable_GetExecutable", api.made(api.Inner, of=handle)).inner
        self.num_outputs = plugin.call("Executable_NumOutputs", api.made(api.Count, of=inner)).count
        plugin.destroy("Executable_Destroy", inner)

    def __call__(self, buffers: list[Buffer]) -> list[Buffer]:
        plugin, count = self.client.plugin, len(buffers)
        given = (ctypes.c_void_p * max(count, 1))(*(b.handle for b in buffers))
        results = (ctypes.c_void_p * max(self.num_outputs, 1))()
        events = (ctypes.c_void_p * 1)()
        kept = (ctypes.c_int64 * max(count, 1))(*range(count))  # arguments stay ours
        options = api.made(api.ExecuteOptions, not_donated=kept, num_not_donated=count)
        row = ctypes.POINTER(ctypes.c_void_p)
        arguments = api.made(
            api.Execute, of=self.handle, options=ctypes.pointer(options), arguments=(row * 1)(ctypes.cast(given, row)),
            num_devices=1, num_arguments=count, outputs=(row * 1)(ctypes.cast(results, row)), events=events,
        )  # fmt: skip
        plugin.call("LoadedExecutable_Execute", arguments)
        made = [Buffer(plugin, results[i]) for i in range(self.num_outputs)]
        plugin.wait(events[0])
        return made


def compile_ahead(plugin: Plugin, topology: str, text: str) -> int:
    """Has a plugin compile StableHLO text for devices that need not be here, such as "v5e:2x2x1" of libtpu.

    Gives the number of results.
    """
    name = topology.encode()
    described = plugin.call(
        "TopologyDescription_Create", api.made(api.CreateTopology, name=name, name_size=len(name))
    ).topology
    try:
        program = _program(text)
        arguments = api.made(
            api.CompileAhead,
            of=described,
            program=ctypes.pointer(program),
            options=_ONE_DEVICE,
            options_size=len(_ONE_DEVICE),
        )
        executable = plugin.call("Compile", arguments).executable
        try:
            return plugin.call("Executable_NumOutputs", api.made(api.Count, of=executable)).count
        finally:
            plugin.destroy("Executable_Destroy", executable)
    finally:
        plugin.destroy("TopologyDescription_Destroy", described)


def _program(text: str):
    code, form = text.encode(), b"mlir"
    return api.made(api.Program, code=code, code_size=len(code), format=form, format_size=len(form))
