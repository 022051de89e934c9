// Runs a saved plan, in a process without Python: run_plan FILE [f32|i64:SIZE,SIZE:ELEMENTS-FILE]...
// Prints the shape and the elements of each result.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"
#include "plan/plan_file.h"

namespace {

using tandem::DType;
using tandem::View;

struct Input {
  std::vector<char> elements;
  View view;
};

Input read(const std::string& argument) {
  const size_t first = argument.find(':'), second = argument.find(':', first + 1);
  Input input;
  input.view.dtype = argument.substr(0, first) == "i64" ? DType::Int64 : DType::Float32;
  std::string sizes = argument.substr(first + 1, second - first - 1);
  input.view.ndim = 0;
  for (size_t at = 0; at < sizes.size();
       at = sizes.find(',', at) == std::string::npos ? sizes.size() : sizes.find(',', at) + 1)
    input.view.shape[input.view.ndim++] = std::strtoll(sizes.c_str() + at, nullptr, 10);
  int64_t step = 1;
  for (int i = input.view.ndim - 1; i >= 0; --i) {
    input.view.strides[i] = step;
    step *= input.view.shape[i];
  }
  std::ifstream file(argument.substr(second + 1), std::ios::binary);
  input.elements.assign(std::istreambuf_iterator<char>(file), {});
  if (input.elements.size() != static_cast<size_t>(step) * tandem::item_size(input.view.dtype))
    tandem::fail(tandem::ErrorKind::Value, "the file has another number of elements");
  input.view.data = input.elements.data();
  return input;
}

void print(const View& v, int axis, const char* data) {
  if (axis == v.ndim) {
    if (v.dtype == DType::Int64)
      std::printf("%lld ", static_cast<long long>(*reinterpret_cast<const int64_t*>(data)));
    else
      std::printf("%.9g ", static_cast<double>(*reinterpret_cast<const float*>(data)));
    return;
  }
  for (int64_t i = 0; i < v.shape[axis]; ++i)
    print(v, axis + 1, data + i * v.strides[axis] * static_cast<int64_t>(tandem::item_size(v.dtype)));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const tandem::PlanFile plan(arguments[1]);
    std::vector<Input> inputs;
    inputs.reserve(static_cast<size_t>(count));
    for (int i = 2; i < count; ++i) inputs.push_back(read(arguments[i]));
    std::vector<View> views;
    for (Input& input : inputs) {
      input.view.data = input.elements.data();
      views.push_back(input.view);
    }
    for (int again = 0; again < 2; ++again) {  // the second run finds the layout of the first
      const auto results = plan.run(views);
      if (again == 0) continue;
      for (const auto& result : results) {
        for (int i = 0; i < result.view.ndim; ++i) std::printf("%lld,", static_cast<long long>(result.view.shape[i]));
        std::printf(": ");
        print(result.view, 0, result.view.data);
        std::printf("\n");
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
