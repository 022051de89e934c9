// Tensors to and from files; see tandem/checkpoint.
#include <errno.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings/bindings.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "files/crc32c.h"
#include "files/transfer.h"

namespace nb = nanobind;

namespace tandem {
namespace {

using Tensors = std::vector<TensorRef>;

std::vector<Block> blocks_of(const char* what, const Tensors& tensors) {
  std::vector<Block> blocks(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    materialize(tensors[i].get());
    const View& view = tensors[i]->view;
    if (!view.is_contiguous()) fail(ErrorKind::Value, what, ": tensor ", i, " is not contiguous");
    blocks[i].data = view.data;
    blocks[i].bytes = static_cast<size_t>(view.numel()) * item_size(view.dtype);
  }
  return blocks;
}

std::vector<uint32_t> checksums_of(const std::vector<Block>& blocks) {
  std::vector<uint32_t> result;
  for (const Block& block : blocks) result.push_back(block.crc);
  return result;
}

[[noreturn]] void raise_system(int error) {
  errno = error;
  PyErr_SetFromErrno(PyExc_OSError);
  nb::raise_python_error();
}

void set_offsets(const char* what, std::vector<Block>& blocks, const std::vector<int64_t>& offsets) {
  if (offsets.size() != blocks.size())
    fail(ErrorKind::Value, what, ": ", blocks.size(), " tensors and ", offsets.size(), " offsets");
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (offsets[i] < 0) fail(ErrorKind::Value, what, ": the offset ", offsets[i], " is negative");
    blocks[i].offset = offsets[i];
  }
}

std::vector<uint32_t> write_tensors(int fd, Tensors tensors, std::vector<int64_t> offsets, bool flush) {
  std::vector<Block> blocks = blocks_of("write_tensors", tensors);
  set_offsets("write_tensors", blocks, offsets);
  int error;
  {
    nb::gil_scoped_release release;
    error = write_blocks(fd, blocks, flush);
  }
  if (error) raise_system(error);
  return checksums_of(blocks);
}

std::vector<uint32_t> read_tensors(int fd, Tensors tensors, std::vector<int64_t> offsets) {
  std::vector<Block> blocks = blocks_of("read_tensors", tensors);
  set_offsets("read_tensors", blocks, offsets);
  for (const TensorRef& tensor : tensors) {
    if (!tensor->storage->writable()) fail(ErrorKind::Value, "read_tensors: a tensor's memory is read-only");
    tensor->storage->bump_version();
  }
  int error;
  {
    nb::gil_scoped_release release;
    error = read_blocks(fd, blocks);
  }
  if (error == kShortFile) {
    PyErr_SetString(PyExc_EOFError, "the file ended before the tensors were full");
    nb::raise_python_error();
  }
  if (error) raise_system(error);
  return checksums_of(blocks);
}

std::vector<uint32_t> checksum_tensors(Tensors tensors) {
  std::vector<Block> blocks = blocks_of("checksum_tensors", tensors);
  nb::gil_scoped_release release;
  checksum_blocks(blocks);
  return checksums_of(blocks);
}

}  // namespace

void register_files(nb::module_& m) {
  m.def("write_tensors", &write_tensors, nb::arg("fd"), nb::arg("tensors"), nb::arg("offsets"),
        nb::arg("flush") = false, "Writes contiguous tensors at offsets of a file; gives the CRC-32C of each.");
  m.def("read_tensors", &read_tensors, nb::arg("fd"), nb::arg("tensors"), nb::arg("offsets"),
        "Fills contiguous tensors from offsets of a file; gives the CRC-32C of each.");
  m.def("checksum_tensors", &checksum_tensors, nb::arg("tensors"), "The CRC-32C of each contiguous tensor.");
  m.def(
      "crc32c", [](nb::bytes data, uint32_t before) { return crc32c(data.c_str(), data.size(), before); },
      nb::arg("data"), nb::arg("before") = 0, "The CRC-32C of bytes.");
}

}  // namespace tandem
