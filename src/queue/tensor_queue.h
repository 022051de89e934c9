// A queue of rows of tensors: checks types and shapes, copies in, batches and pads on the way out. Tensors stay on the
// device they come from; what comes out can be used on the current stream of whoever takes it. Calls need the GIL where
// there are tensors of devices.
#pragma once
#include <string>
#include <vector>

#include "executor/tensor_payload.h"
#include "queue/queue.h"

namespace tandem {

struct Component {  // of a row
  DType dtype;
  bool known = false;          // whether the shape is declared
  std::vector<int64_t> shape;  // -1: any size
};

class TensorQueue {
 public:
  TensorQueue(std::string name, std::vector<Component> components, Queue::Order order, bool padding, int64_t capacity,
              int64_t min_after_dequeue, uint64_t seed);

  using Tensors = std::vector<const Tensor*>;
  Queue::Status enqueue(const Tensors& row, const Queue::Wait& wait);
  Queue::Status enqueue_many(const Tensors& columns, const Queue::Wait& wait);
  // One row as it was, or rows stacked along a new first axis.
  Queue::Status dequeue(std::vector<flow::Token>& row, const Queue::Wait& wait);
  Queue::Status dequeue_many(int64_t count, bool fewer, std::vector<flow::Token>& columns, const Queue::Wait& wait);

  Queue& queue() { return queue_; }
  const std::string& name() const { return name_; }
  const std::vector<Component>& components() const { return components_; }

 private:
  void check(const View& v, size_t component, bool many) const;
  Queue::Element element(Queue::Row row) const;
  flow::Token stack(const std::vector<Queue::Element>& elements, size_t component) const;

  std::string name_;
  std::vector<Component> components_;
  Queue::Order order_;
  bool padding_;
  Queue queue_;
};

}  // namespace tandem
