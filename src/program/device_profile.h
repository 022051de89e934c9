// Times of single steps of plans on devices, for td.cuda.profile.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace tandem {

void set_device_profiling(bool on);  // on: forgets earlier times; every step is waited for, and programs run plainly
bool device_profiling();
std::vector<std::tuple<std::string, int64_t, double>> device_times();  // (step, how often, milliseconds in all)

}  // namespace tandem
