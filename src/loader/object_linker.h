// Links one relocatable ELF64 object (x86-64 or aarch64), as LLVM writes them, into an image for a given address.
//
// The object may come from a damaged file: every offset, index and size in it is checked, and an object that does not
// make sense, or asks for something a kernel has no use for, throws an Error of kind Value.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Machine : uint16_t { X86_64 = 62, AArch64 = 183 };  // e_machine

class ObjectLinker {
 public:
  using Resolve = std::function<uint64_t(const char*)>;  // address of an undefined symbol, 0 where there is none

  explicit ObjectLinker(std::string_view object);  // the bytes must outlive the linker

  Machine machine() const { return machine_; }
  size_t size() const { return size_; }          // bytes of the image
  size_t symbol(const std::string& name) const;  // offset of a function in the image
  std::vector<uint8_t> link(uint64_t address, const Resolve& resolve) const;

  static constexpr size_t alignment = 64;  // what `address` must be a multiple of

 private:
  struct Section {
    uint64_t offset, size;  // in the object
    uint64_t image;         // in the image, or `absent`
    bool zeros;
  };
  struct Symbol {
    const char* name;
    uint64_t value;  // offset in the image, or the absolute value
    uint32_t slot;   // entry in the table of addresses that need 64 bits, or no_slot
    enum class Kind : uint8_t { undefined, in_image, absolute, unusable } kind;
    bool function;
  };
  struct Relocation {
    uint64_t place;  // offset in the image
    int64_t addend;
    uint32_t symbol, type;
  };
  static constexpr uint64_t absent = ~uint64_t{0};
  static constexpr uint32_t no_slot = ~uint32_t{0};
  // Per slot: the address, then code that jumps to it, for calls that reach no further than 2 GiB (128 MiB on aarch64).
  static constexpr size_t slot_size = 32, stub_offset = 8;

  void read_sections();
  void read_symbols(size_t section, const char* strings, uint64_t strings_size);
  void read_relocations();
  template <typename T>
  T read(uint64_t offset) const;

  std::string_view object_;
  Machine machine_{};
  size_t size_ = 0;
  uint64_t slots_ = 0;  // where the slots begin in the image
  uint32_t num_slots_ = 0;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
  std::vector<Relocation> relocations_;
};

}  // namespace tandem
