// A weight's gradient, added up over many records.
//
// Note [Lazy weight gradients]
// Groups of td.autobatch and frontiers of vertex programs have few rows, and each gives a gradient as large as the
// weights that they share: a matmul over few rows, which takes as long as writing its result, and a sum with those of
// the groups before. So backward of such records (role.lazy_sums of their functions, tandem/autodiff/lazy_sums.py)
// gives what these gradients are sums of, and the engine adds them up where they arrive. Of a matmul's operands, rows
// are collected until there are enough for it to be bound by arithmetic, and multiplied once. Rows of a table are added
// in place to one gradient. Not where gradients are differentiated again, captured or watched for NaNs.
//
// On devices, where a launch costs more than what it does, operands are kept as they are, for longer, and joined by one
// launch each when they are needed (Note [Rows by one launch] in tensor/device_rows.h).
#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace tandem {

class LazySum {
 public:
  void add_matmul(TensorRef left, TensorRef right);                                      // left.T @ right
  void add_rows(const Tensor& table, const TensorRef& index, const TensorRef& updates);  // of a tensor like table
  TensorRef total();                                                                     // of all that was added

 private:
  class Pieces {  // of one matrix, on a device
   public:
    void add(TensorRef t);
    bool takes(const TensorRef& t) const;  // rows like those before
    int64_t rows() const { return rows_; }
    TensorRef join();  // and nothing is left

   private:
    std::vector<TensorRef> list_;
    int64_t rows_ = 0;
  };
  void multiply(const TensorRef& left, const TensorRef& right);
  void multiply_collected();
  void add_on_device(Pieces& a, TensorRef first, Pieces& b, TensorRef second);
  void add_at(const TensorRef& index, const TensorRef& updates);
  void add_collected();
  TensorRef total_;         // of what has been multiplied
  TensorRef rows_;          // of tables
  TensorRef left_, right_;  // collected rows, so many,
  int64_t used_ = 0;
  bool has_room_ = false;  // for more
  Pieces lefts_, rights_, indices_, updates_;
};

}  // namespace tandem
