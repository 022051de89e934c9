// Generated kernels: object code goes in, something to call comes out.
#pragma once
#include <string>
#include <string_view>

namespace tandem {

// Puts an ELF object for this machine into executable memory and returns the address of function `entry`. Undefined
// symbols are looked up in the process. The memory stays for the life of the process. Throws an Error of kind Value
// where the object is damaged, for another machine, or without `entry`. Safe to call from several threads.
void* load_object(std::string_view object, const std::string& entry);

}  // namespace tandem
