// What relocation types mean: how an address is written into code or data.
#pragma once
#include <cstdint>

#include "loader/object_linker.h"

namespace tandem {

// What a relocation refers to: the symbol itself, or a slot that holds its address.
enum class Target { symbol, slot };

struct RelocationRule {
  bool known;
  Target target;
  bool call;      // a branch that may go through a stub instead
  uint8_t width;  // bytes changed
};

RelocationRule relocation_rule(Machine machine, uint32_t type);

// Writes `target` (symbol or slot address plus addend) into the bytes at `place`, which will run at address `pc`.
// Returns false where the distance does not fit.
bool relocate(Machine machine, uint32_t type, uint8_t* place, uint64_t pc, uint64_t target);

// Code that jumps to the address stored 8 bytes before it; 24 bytes are there to write to.
void write_stub(Machine machine, uint8_t* code);

}  // namespace tandem
