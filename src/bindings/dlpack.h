// The binary interface of DLPack 1.x (https://dmlc.github.io/dlpack), and tensors across it.
#pragma once
#include <Python.h>

#include <cstdint>

#include "tensor/tensor.h"

namespace tandem {

enum DLDeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };
enum DLTypeCode : uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };

struct DLDevice {
  int32_t type;
  int32_t id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

constexpr uint64_t kDLReadOnly = 1, kDLIsCopied = 2;

struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor tensor;
};

DLDevice dlpack_device(const Tensor* tensor);

// Tensor.__dlpack__: a new capsule. Arguments as in the Array API standard.
PyObject* export_dlpack(const Tensor* tensor, PyObject* stream, PyObject* max_version, PyObject* dl_device,
                        PyObject* copy);

// New reference; shares memory unless `copy` is true. `object` has __dlpack__, or is a capsule.
Tensor* import_dlpack(PyObject* object, PyObject* copy);

}  // namespace tandem
