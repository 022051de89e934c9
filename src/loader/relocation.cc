#include "loader/relocation.h"

#include <cstring>

namespace tandem {
namespace {

// Names and numbers from the psABI documents of the two machines.
enum X86 : uint32_t {
  R_X86_64_64 = 1,
  R_X86_64_PC32 = 2,
  R_X86_64_PLT32 = 4,
  R_X86_64_GOTPCREL = 9,
  R_X86_64_32 = 10,
  R_X86_64_32S = 11,
  R_X86_64_PC64 = 24,
  R_X86_64_GOTPCRELX = 41,
  R_X86_64_REX_GOTPCRELX = 42,
};

enum Arm : uint32_t {
  R_AARCH64_ABS64 = 257,
  R_AARCH64_ABS32 = 258,
  R_AARCH64_PREL64 = 260,
  R_AARCH64_PREL32 = 261,
  R_AARCH64_ADR_PREL_LO21 = 274,
  R_AARCH64_ADR_PREL_PG_HI21 = 275,
  R_AARCH64_ADD_ABS_LO12_NC = 277,
  R_AARCH64_LDST8_ABS_LO12_NC = 278,
  R_AARCH64_JUMP26 = 282,
  R_AARCH64_CALL26 = 283,
  R_AARCH64_LDST16_ABS_LO12_NC = 284,
  R_AARCH64_LDST32_ABS_LO12_NC = 285,
  R_AARCH64_LDST64_ABS_LO12_NC = 286,
  R_AARCH64_LDST128_ABS_LO12_NC = 299,
  R_AARCH64_ADR_GOT_PAGE = 311,
  R_AARCH64_LD64_GOT_LO12_NC = 312,
};

constexpr RelocationRule unknown{false, Target::symbol, false, 0};
constexpr RelocationRule word32{true, Target::symbol, false, 4}, word64{true, Target::symbol, false, 8};
constexpr RelocationRule call32{true, Target::symbol, true, 4}, slot32{true, Target::slot, false, 4};

bool fits(int64_t value, int bits) {
  return value >= -(int64_t{1} << (bits - 1)) && value < (int64_t{1} << (bits - 1));
}

template <typename T>
bool store(uint8_t* place, T value) {
  std::memcpy(place, &value, sizeof value);
  return true;
}

// Replaces the bits of `mask` in an instruction.
bool patch(uint8_t* place, uint32_t mask, uint32_t bits) {
  uint32_t instruction;
  std::memcpy(&instruction, place, 4);
  return store(place, (instruction & ~mask) | (bits & mask));
}

bool patch_adr(uint8_t* place, int64_t immediate) {  // 21 bits: the low two at 29, the others at 5
  if (!fits(immediate, 21)) return false;
  auto bits = static_cast<uint32_t>(immediate);
  return patch(place, 0x60FFFFE0u, (bits & 3u) << 29 | (bits >> 2 & 0x7FFFFu) << 5);
}

bool patch_low12(uint8_t* place, uint64_t target, int scale) {  // an offset within a page, in units of the access
  auto low = static_cast<uint32_t>(target & 0xFFFu);
  if (low & ((1u << scale) - 1)) return false;
  return patch(place, 0xFFFu << 10, low >> scale << 10);
}

bool patch_branch(uint8_t* place, int64_t distance) {
  if (distance & 3 || !fits(distance, 28)) return false;
  return patch(place, 0x03FFFFFFu, static_cast<uint32_t>(distance >> 2));
}

bool relocate_x86(uint32_t type, uint8_t* place, uint64_t pc, uint64_t target) {
  auto distance = static_cast<int64_t>(target - pc);
  switch (type) {
    case R_X86_64_64:
      return store(place, target);
    case R_X86_64_PC64:
      return store(place, distance);
    case R_X86_64_32:
      return target <= UINT32_MAX && store(place, static_cast<uint32_t>(target));
    case R_X86_64_32S:
      return fits(static_cast<int64_t>(target), 32) && store(place, static_cast<uint32_t>(target));
    default:
      return fits(distance, 32) && store(place, static_cast<uint32_t>(distance));
  }
}

bool relocate_arm(uint32_t type, uint8_t* place, uint64_t pc, uint64_t target) {
  auto distance = static_cast<int64_t>(target - pc);
  switch (type) {
    case R_AARCH64_ABS64:
      return store(place, target);
    case R_AARCH64_PREL64:
      return store(place, distance);
    case R_AARCH64_ABS32:
      return (target <= UINT32_MAX || fits(static_cast<int64_t>(target), 32)) &&
             store(place, static_cast<uint32_t>(target));
    case R_AARCH64_PREL32:
      return fits(distance, 32) && store(place, static_cast<uint32_t>(distance));
    case R_AARCH64_ADR_PREL_LO21:
      return patch_adr(place, distance);
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_GOT_PAGE:
      return patch_adr(place, static_cast<int64_t>((target & ~uint64_t{0xFFF}) - (pc & ~uint64_t{0xFFF})) >> 12);
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
      return patch_low12(place, target, 0);
    case R_AARCH64_LDST16_ABS_LO12_NC:
      return patch_low12(place, target, 1);
    case R_AARCH64_LDST32_ABS_LO12_NC:
      return patch_low12(place, target, 2);
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LD64_GOT_LO12_NC:
      return patch_low12(place, target, 3);
    case R_AARCH64_LDST128_ABS_LO12_NC:
      return patch_low12(place, target, 4);
    default:
      return patch_branch(place, distance);
  }
}

}  // namespace

RelocationRule relocation_rule(Machine machine, uint32_t type) {
  if (machine == Machine::X86_64) {
    switch (type) {
      case R_X86_64_64:
      case R_X86_64_PC64:
        return word64;
      case R_X86_64_PLT32:
        return call32;
      case R_X86_64_PC32:
      case R_X86_64_32:
      case R_X86_64_32S:
        return word32;
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX:
        return slot32;
      default:
        return unknown;
    }
  }
  switch (type) {
    case R_AARCH64_ABS64:
    case R_AARCH64_PREL64:
      return word64;
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26:
      return call32;
    case R_AARCH64_ADR_GOT_PAGE:
    case R_AARCH64_LD64_GOT_LO12_NC:
      return slot32;
    case R_AARCH64_ABS32:
    case R_AARCH64_PREL32:
    case R_AARCH64_ADR_PREL_LO21:
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC:
      return word32;
    default:
      return unknown;
  }
}

bool relocate(Machine machine, uint32_t type, uint8_t* place, uint64_t pc, uint64_t target) {
  return machine == Machine::X86_64 ? relocate_x86(type, place, pc, target) : relocate_arm(type, place, pc, target);
}

void write_stub(Machine machine, uint8_t* code) {
  if (machine == Machine::X86_64) {
    const uint8_t jump[] = {0xFF, 0x25, 0xF2, 0xFF, 0xFF, 0xFF};  // jmp *-14(%rip), which is 8 before this code
    std::memcpy(code, jump, sizeof jump);
  } else {
    store(code, uint32_t{0x58FFFFD0u});      // ldr x16, #-8
    store(code + 4, uint32_t{0xD61F0200u});  // br x16
  }
}

}  // namespace tandem
