// Tape records of calls that ran in batches.
//
// Note [Gradients of rows]
// A group of calls is recorded once, by the operator that ran it; its results are blocks, of which a tensor is a row.
// Gradients of rows come from many sides, and most of a block gets none from each: so they are added in place, into one
// block of sums, and what travels along the edges of the tape is only that they are there. A Block has the sums of a
// group's results and hands them on to the group's own record; a Row puts the gradient of one tensor in; a Gather does
// so for the rows that an operand of a group was made of, as far as they are rows of blocks, and gives others theirs.
// Where somebody still holds a tensor when its consumers run, its gradient is asked for, or a hook looks at it, later
// on, perhaps: then a Gather is led through the tensor's own record (`show`, autograd/shown.h).
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "autograd/record.h"

namespace tandem {

class GatherNode;

// Of groups of one function in one batch: which of its results something takes that gradients come from. Where one of
// them gets none in some group (the memory of a tree's root), it gets zeros there: no other backward is compiled.
struct ResultsUsed {
  uint64_t batch = 0;
  std::vector<bool> used;
};

class BlockNode final : public Node {
 public:
  explicit BlockNode(const TensorList& blocks);
  void set_used(std::shared_ptr<ResultsUsed> used) { used_ = std::move(used); }
  void note_use(uint32_t output) {
    if (used_ && output < used_->used.size()) used_->used[output] = true;
  }
  TensorList apply(TensorList grads, bool create_graph) override;
  const char* name() const override { return "autobatch"; }
  bool has_gradients() const override;

  // Adds `from`, which lies in `grad`, to the sums of an output, at a geometry whose data is an offset in bytes.
  void add(uint32_t output, const View& place, const Tensor* grad, const View& from);
  void add_recorded(uint32_t output, const View& place, TensorRef grad);  // the same, differentiable again
  // All of an output's gradient at once, if nothing has come yet and it can be kept as it is.
  bool take_whole(uint32_t output, TensorRef& grad);
  // A row of a block's rows, one after the other from there on: kept as it is until the sums are read, on a device.
  void take_rows(uint32_t output, int64_t first, TensorRef grad);
  Tensor* sums_of(uint32_t output) { return writable(sums_[output]); }  // to be added to
  // Notes that rows of an output will be added by the next launch of tensor/device_rows.h; false if that is known.
  bool note_added(uint32_t output);

 private:
  struct Sum {
    SavedView block;  // the geometry
    int device;
    TensorRef total;
    std::vector<std::pair<int64_t, TensorRef>> pieces;  // from which row on; to be added, too
    uint64_t backward = 0;                              // the run of the engine that it belongs to
    uint64_t launch = 0;                                // that adds rows
    bool current() const;
    void clear() { total = TensorRef(), pieces.clear(); }
  };
  Tensor* writable(Sum& sum);
  void join_pieces(Sum& sum);
  std::vector<Sum> sums_;
  std::shared_ptr<ResultsUsed> used_;  // of cells
};

// A tensor that is a row of a block, or a view of one (of `base`). Until the call has run, there is no block.
class RowNode final : public Node {
 public:
  ~RowNode() override {
    if (base_) --base_->uses;
  }
  // place: in the memory of the call's result alone, which has so many bytes.
  RowNode(uint32_t output, const View& place, size_t bytes, Ref<RowNode> base)
      : output_(output), bytes_(bytes), base_(std::move(base)) {
    place_ = place;
    dense_ = place.is_contiguous();
  }
  // All of a result.
  RowNode(uint32_t output, const SavedView& whole, size_t bytes) : output_(output), bytes_(bytes), dense_(true) {
    place_.assign(whole, nullptr);
  }
  TensorList apply(TensorList grads, bool create_graph) override;
  const char* name() const override { return "autobatch"; }
  RowNode* as_row() override { return this; }

  void settle(const Ref<BlockNode>& block, uint32_t output, size_t offset);  // in this one of the block's
  BlockNode* block() const { return block_.get(); }
  uint32_t output() const { return output_; }
  View place() const;   // in the block; data is an offset in bytes
  View in_row() const;  // in the result alone
  size_t bytes() const { return bytes_; }
  bool dense() const { return dense_; }                                              // its elements lie side by side,
  size_t offset() const { return offset_ + reinterpret_cast<size_t>(place_.data); }  // from here on in the block
  DType dtype() const { return place_.dtype; }
  // Whether a tensor with this history is held elsewhere than by `uses`: deferred calls, and the batch itself.
  bool held() const { return references() > uses || !hooks.empty(); }
  bool seen() const { return held() || (base_ && base_->seen()); }  // or one that this is a view of
  bool watched() const { return !hooks.empty() || (base_ && base_->watched()); }
  // Those who pass by it, while somebody holds it.
  void add_passing(GatherNode* gather);
  void remove_passing(GatherNode* gather);
  void show();
  bool shows(const RowNode* other) const;  // it, or what it is a view of
  bool is_view() const { return static_cast<bool>(base_); }
  int64_t uses = 0;
  Ref<RowNode> next;  // of the same result, until the call has run

 private:
  TensorRef for_base(TensorRef grad, bool create_graph) const;
  uint32_t output_;
  size_t bytes_, offset_ = 0;
  Ref<RowNode> base_;
  bool through_base_ = false, dense_ = false;
  SavedView place_;
  Ref<BlockNode> block_;
  std::vector<GatherNode*> passing_;
};

// Which rows of which blocks; several operands may be made of the same ones.
struct RowList {
  struct Row {
    int32_t block;  // among those of the list; -1: its gradient is not wanted
    int64_t row;
  };
  std::vector<Row> rows;
  size_t used = 0;        // the first ones; others get no gradient
  bool distinct = false;  // no row is there twice
  bool whole = false;     // the rows are all of one block, in order
  bool is_part = false;   // one after the other, of a block whose other rows are given in such parts, too
};

// Rows of blocks one after the other, each of the same size: what a frontier of a vertex program is given.
class RowsNode final : public Node {
 public:
  // row: the geometry of one; its elements lie side by side. Blocks are those of the list, in its order.
  RowsNode(const View& row, std::shared_ptr<const RowList> list) : list_(std::move(list)) { row_ = row; }
  TensorList apply(TensorList grads, bool create_graph) override;
  const char* name() const override { return "vertex"; }

  void add_block(BlockNode* block, uint32_t output);  // the edge that leads to it

 private:
  BlockNode* block(const RowList::Row& row) const { return static_cast<BlockNode*>(edges[row.block].node.get()); }
  TensorRef flat(TensorRef grad) const;  // with an axis of rows and those of one
  void add_recorded(TensorRef grad);
  void add_on_device(TensorRef grad);
  SavedView row_;
  const std::shared_ptr<const RowList> list_;
};

// An operand of a group, made of the rows that its members have.
class GatherNode final : public Node {
 public:
  explicit GatherNode(bool stacked) : stacked_(stacked) {}
  ~GatherNode() override;
  TensorList apply(TensorList grads, bool create_graph) override;
  const char* name() const override { return "autobatch"; }

  void add_member(const Edge& edge);                             // where the gradient of the next row goes
  void lead_through(const RowNode* row);                         // from now on
  bool one_block() const;                                        // whether all rows are of one
  bool whole = false;                                            // the rows are all of a block, in order
  void set_row(const View& row) { row_ = row, joined_ = true; }  // several rows are one of the operand's

 private:
  TensorRef flat(TensorRef grad, bool create_graph) const;  // with an axis of rows and those of one
  struct Member {
    int32_t edge;
    Ref<Node> row;        // a RowNode; null: the edge takes the gradient itself
    bool passes = false;  // by the row, which somebody holds
  };
  bool stacked_, joined_ = false;
  SavedView row_;  // where rows are joined
  std::vector<Member> members_;
};

}  // namespace tandem
