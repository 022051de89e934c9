#include "queue/tensor_queue.h"

#include <algorithm>
#include <cstring>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/memory.h"
#include "tensor/copy.h"
#include "tensor/device_copy.h"

namespace tandem {

namespace {

std::string show(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + (shape[i] < 0 ? std::string("None") : std::to_string(shape[i]));
  return text + (shape.size() == 1 ? ",)" : ")");
}

// A contiguous tensor of this shape; `fill` writes it.
template <typename F>
flow::Token fresh(DType dtype, int ndim, const int64_t* shape, int device, F&& fill) {
  View v;
  v.dtype = dtype;
  v.ndim = ndim;
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    v.shape[i] = shape[i];
    v.strides[i] = step;
    step *= shape[i];
  }
  Ref<Storage> storage = Ref<Storage>::adopt(Storage::allocate(checked_bytes(dtype, ndim, shape), device));
  v.data = storage->data();
  fill(v);
  return flow::Token::adopt(new TensorPayload(std::move(storage), v));
}

// Copies `from` into the corner of `to` that has its sizes.
void copy_into(const View& from, const View& to, int device) {
  View corner = to;
  for (int i = 0; i < from.ndim; ++i) corner.shape[i] = from.shape[i];
  if (device) return cuda::copy_elements(device - 1, from, corner);
  if (from.is_contiguous() && corner.is_contiguous()) {
    size_t bytes = static_cast<size_t>(from.numel()) * item_size(from.dtype);
    if (bytes) std::memcpy(corner.data, from.data, bytes);
  } else {
    copy_view(from, corner);
  }
}

flow::Token copy_of(const View& v, int device) {
  return fresh(v.dtype, v.ndim, v.shape, device, [&](const View& to) { copy_into(v, to, device); });
}

void fill_with_zeros(const View& v, int device) {
  const size_t bytes = static_cast<size_t>(v.numel()) * item_size(v.dtype);
  if (!device)
    std::memset(v.data, 0, bytes);
  else if (bytes)
    cuda::check(
        cuda::driver().set_bytes(reinterpret_cast<cuda::Address>(v.data), 0, bytes, cuda::current_stream(device - 1)),
        "filling device memory");
}

// An element was written on the producer's stream: the current one comes after that, and the memory is told.
const TensorPayload& taken(const flow::Token& token) {
  const TensorPayload& payload = as_tensor(token);
  const int device = payload.storage->device();
  if (!device || payload.stream == cuda::current_stream(device - 1)) return payload;
  cuda::follow_stream(device - 1, payload.stream);
  if (void* block = payload.storage->block())
    cuda::record_stream(static_cast<cuda::Block*>(block), cuda::current_stream(device - 1));
  return payload;
}

std::string device_name(int device) {
  return device ? "cuda:" + std::to_string(device - 1) : "cpu";
}

View row_of(const View& v, int64_t index) {
  View row;
  row.dtype = v.dtype;
  row.ndim = v.ndim - 1;
  row.data = v.data + index * v.strides[0] * static_cast<int64_t>(item_size(v.dtype));
  for (int i = 0; i < row.ndim; ++i) {
    row.shape[i] = v.shape[i + 1];
    row.strides[i] = v.strides[i + 1];
  }
  return row;
}

}  // namespace

TensorQueue::TensorQueue(std::string name, std::vector<Component> components, Queue::Order order, bool padding,
                         int64_t capacity, int64_t min_after_dequeue, uint64_t seed)
    : name_(std::move(name)),
      components_(std::move(components)),
      order_(order),
      padding_(padding),
      queue_(order, capacity, min_after_dequeue, seed) {}

void TensorQueue::check(const View& v, size_t component, bool many) const {
  const Component& c = components_[component];
  if (v.dtype != c.dtype)
    fail(ErrorKind::Type, many ? "enqueue_many: " : "enqueue: ", "component ", component, " is ", tandem::name(v.dtype),
         "; queue '", name_, "' holds ", tandem::name(c.dtype), " there\n  fix: convert it first: x.astype(",
         tandem::name(c.dtype), ")");
  int first = many ? 1 : 0;
  if (v.ndim < first)
    fail(ErrorKind::Shape, "enqueue_many: component ", component,
         " is a single number; many need a first axis to be taken apart along");
  if (!c.known) return;
  bool fits = v.ndim - first == static_cast<int>(c.shape.size());
  for (size_t i = 0; fits && i < c.shape.size(); ++i) fits = c.shape[i] < 0 || c.shape[i] == v.shape[i + first];
  if (!fits)
    fail(ErrorKind::Shape, many ? "enqueue_many: " : "enqueue: ", "component ", component, " is ",
         format_shape(v.ndim, v.shape), "; queue '", name_, "' holds elements of shape ", show(c.shape),
         many ? ", given along a new first axis" : "");
}

Queue::Element TensorQueue::element(Queue::Row row) const {
  Queue::Element made;
  if (order_ == Queue::Order::Priority) {
    const TensorPayload& first = as_tensor(row[0]);
    if (const int device = first.storage->device())
      cuda::copy_to_host(device - 1, reinterpret_cast<char*>(&made.priority), first.view.data, sizeof(int64_t), true);
    else
      std::memcpy(&made.priority, first.view.data, sizeof(int64_t));
  }
  made.row = std::move(row);
  return made;
}

static void check_count(size_t given, size_t expected, const std::string& name) {
  if (given != expected)
    fail(ErrorKind::Value, "enqueue: an element of queue '", name, "' has ", expected,
         expected == 1 ? " component" : " components", ", not ", given);
}

Queue::Status TensorQueue::enqueue(const Tensors& row, const Queue::Wait& wait) {
  check_count(row.size(), components_.size(), name_);
  for (size_t k = 0; k < row.size(); ++k) check(row[k]->view, k, false);
  Queue::Row copies;
  copies.reserve(row.size());
  for (const Tensor* t : row) copies.push_back(copy_of(t->view, t->storage->device()));
  std::vector<Queue::Element> elements;
  elements.push_back(element(std::move(copies)));
  return queue_.enqueue(elements, wait);
}

Queue::Status TensorQueue::enqueue_many(const Tensors& columns, const Queue::Wait& wait) {
  check_count(columns.size(), components_.size(), name_);
  for (size_t k = 0; k < columns.size(); ++k) {
    check(columns[k]->view, k, true);
    if (columns[k]->view.shape[0] != columns[0]->view.shape[0])
      fail(ErrorKind::Shape, "enqueue_many: component 0 has ", columns[0]->view.shape[0], " elements and component ", k,
           " has ", columns[k]->view.shape[0]);
  }
  std::vector<Queue::Element> elements;
  for (int64_t i = 0; i < columns[0]->view.shape[0]; ++i) {
    Queue::Row row;
    row.reserve(columns.size());
    for (const Tensor* t : columns) row.push_back(copy_of(row_of(t->view, i), t->storage->device()));
    elements.push_back(element(std::move(row)));
  }
  return queue_.enqueue(elements, wait);
}

Queue::Status TensorQueue::dequeue(std::vector<flow::Token>& row, const Queue::Wait& wait) {
  std::vector<Queue::Element> elements;
  Queue::Status status = queue_.dequeue(1, false, elements, wait);
  if (status == Queue::Status::Ok) row = std::move(elements[0].row);
  for (const flow::Token& token : row) taken(token);
  return status;
}

Queue::Status TensorQueue::dequeue_many(int64_t count, bool fewer, std::vector<flow::Token>& columns,
                                        const Queue::Wait& wait) {
  std::vector<Queue::Element> elements;
  elements.reserve(static_cast<size_t>(std::min<int64_t>(count, 4096)));
  Queue::Status status = queue_.dequeue(count, fewer, elements, wait);
  if (status == Queue::Status::Ok)
    for (size_t k = 0; k < components_.size(); ++k) columns.push_back(stack(elements, k));
  return status;
}

flow::Token TensorQueue::stack(const std::vector<Queue::Element>& elements, size_t component) const {
  const Component& c = components_[component];
  int64_t shape[kMaxDims];
  int ndim = static_cast<int>(c.shape.size());
  shape[0] = static_cast<int64_t>(elements.size());
  for (int i = 0; i < ndim; ++i) shape[i + 1] = std::max<int64_t>(c.shape[i], 0);
  if (!c.known && !elements.empty()) {
    const View& v = as_tensor(elements[0].row[component]).view;
    ndim = v.ndim;
    if (ndim + 1 > kMaxDims) fail(ErrorKind::Shape, "elements with ", ndim, " axes cannot be stacked");
    std::copy_n(v.shape, ndim, shape + 1);
  }
  bool pads = false;
  const int device = elements.empty() ? 0 : as_tensor(elements[0].row[component]).storage->device();
  for (size_t e = 0; e < elements.size(); ++e) {
    const TensorPayload& element = taken(elements[e].row[component]);
    const View& v = element.view;
    if (element.storage->device() != device)
      fail(ErrorKind::Device, "dequeue_many: elements of queue '", name_, "' are on different devices, component ",
           component, ": ", device_name(device), ", ", device_name(element.storage->device()),
           "\n  fix: move them together before they are enqueued: x.to(device)");
    bool same = v.ndim == ndim;
    for (int i = 0; same && i < ndim; ++i) {
      if (v.shape[i] == shape[i + 1]) continue;
      bool open = c.known && c.shape[i] < 0;
      if (!open || (!padding_ && e > 0)) same = false;
      pads |= e > 0;
      shape[i + 1] = std::max(shape[i + 1], v.shape[i]);
    }
    if (!same)
      fail(ErrorKind::Shape, "dequeue_many: elements of queue '", name_, "' differ in shape, component ", component,
           ": ", format_shape(ndim, shape + 1), " and ", format_shape(v.ndim, v.shape),
           "\n  fix: a PaddingFIFOQueue fills up to the largest, in axes declared as None");
  }
  return fresh(c.dtype, ndim + 1, shape, device, [&](const View& to) {
    if (pads) fill_with_zeros(to, device);
    for (size_t e = 0; e < elements.size(); ++e)
      copy_into(as_tensor(elements[e].row[component]).view, row_of(to, static_cast<int64_t>(e)), device);
  });
}

}  // namespace tandem
