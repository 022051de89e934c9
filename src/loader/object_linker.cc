#include "loader/object_linker.h"

#include <algorithm>
#include <cstring>

#include "check.h"
#include "loader/relocation.h"

namespace tandem {
namespace {

// ELF64, as far as it is needed here; <elf.h> is not everywhere.
struct FileHeader {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, program_headers, section_headers;
  uint32_t flags;
  uint16_t size, program_header_size, num_program_headers, section_header_size, num_sections, names_section;
};
struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t align, entry_size;
};
struct SymbolEntry {
  uint32_t name;
  uint8_t info, other;
  uint16_t section;
  uint64_t value, size;
};
struct RelocationEntry {
  uint64_t offset, info;
  int64_t addend;
};
static_assert(sizeof(FileHeader) == 64 && sizeof(SectionHeader) == 64);
static_assert(sizeof(SymbolEntry) == 24 && sizeof(RelocationEntry) == 24);

constexpr uint16_t relocatable = 1;
enum SectionType : uint32_t {
  progbits = 1,
  symtab = 2,
  strtab = 3,
  rela = 4,
  nobits = 8,
  rel = 9,
  unwind = 0x70000001
};
enum SectionFlag : uint64_t { writable = 1, allocated = 2, thread_local_data = 0x400 };
enum SpecialSection : uint16_t { undefined_section = 0, first_reserved = 0xFF00, absolute_section = 0xFFF1 };

constexpr uint64_t largest_image = uint64_t{256} << 20;  // calls inside the image must reach

template <typename... Parts>
[[noreturn]] void damaged(const Parts&... parts) {
  fail(ErrorKind::Value, "object code cannot be loaded: ", parts...);
}

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

template <typename T>
T ObjectLinker::read(uint64_t offset) const {
  if (offset > object_.size() || object_.size() - offset < sizeof(T)) damaged("it ends too early");
  T value;
  std::memcpy(&value, object_.data() + offset, sizeof(T));
  return value;
}

ObjectLinker::ObjectLinker(std::string_view object) : object_(object) {
  auto header = read<FileHeader>(0);
  const uint8_t expected[] = {0x7F, 'E', 'L', 'F', 2, 1, 1};  // 64 bits, little endian, version 1
  if (std::memcmp(header.ident, expected, sizeof expected) != 0) damaged("it is not a little-endian ELF64 file");
  if (header.type != relocatable) damaged("it is not relocatable");
  if (header.machine != uint16_t(Machine::X86_64) && header.machine != uint16_t(Machine::AArch64))
    damaged("machine ", header.machine, " is unknown");
  machine_ = Machine(header.machine);
  read_sections();
  read_relocations();
}

void ObjectLinker::read_sections() {
  auto header = read<FileHeader>(0);
  if (header.section_header_size != sizeof(SectionHeader) || header.num_sections == 0)
    damaged("its section table is malformed");
  sections_.reserve(header.num_sections);
  uint64_t size = 0;
  size_t symbol_section = 0;
  for (size_t i = 0; i < header.num_sections; ++i) {
    auto entry = read<SectionHeader>(header.section_headers + i * sizeof(SectionHeader));
    bool zeros = entry.type == nobits;
    if (entry.type != 0 && !zeros && (entry.offset > object_.size() || entry.size > object_.size() - entry.offset))
      damaged("section ", i, " lies outside the file");
    sections_.push_back({entry.offset, entry.size, absent, zeros});
    if (entry.type == symtab) symbol_section = i;
    // Unwind tables (.eh_frame) are of no use: nothing unwinds through a kernel.
    if (!(entry.flags & allocated) || entry.type == unwind || entry.size == 0) continue;
    if (entry.type != progbits && !zeros) continue;
    if (entry.flags & thread_local_data) damaged("it has thread-local data");
    // Kernels keep no state. Constants that hold addresses (.data.rel.ro) are marked writable too, so what matters is
    // whether there is something to write to; the memory is read-only in the end, and a store would fault.
    if (entry.flags & writable && zeros) damaged("it has variables");
    uint64_t align = std::max<uint64_t>(entry.align, 1);
    if (align > alignment || (align & (align - 1))) damaged("section ", i, " asks for an alignment of ", entry.align);
    size = round_up(size, align);
    sections_.back().image = size;
    if (entry.size > largest_image || (size += entry.size) > largest_image) damaged("it is too large");
  }
  size_ = size;
  if (!symbol_section) damaged("it has no symbols");
  auto symbols = read<SectionHeader>(header.section_headers + symbol_section * sizeof(SectionHeader));
  if (symbols.link >= sections_.size()) damaged("its symbols have no names");
  auto strings = read<SectionHeader>(header.section_headers + symbols.link * sizeof(SectionHeader));
  if (strings.type != strtab || strings.size == 0 || object_[strings.offset + strings.size - 1] != 0)
    damaged("its symbols have no names");
  read_symbols(symbol_section, object_.data() + strings.offset, strings.size);
}

void ObjectLinker::read_symbols(size_t section, const char* strings, uint64_t strings_size) {
  size_t count = sections_[section].size / sizeof(SymbolEntry);
  symbols_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    auto entry = read<SymbolEntry>(sections_[section].offset + i * sizeof(SymbolEntry));
    if (entry.name >= strings_size) damaged("symbol ", i, " has no name");
    Symbol symbol{strings + entry.name, 0, no_slot, Symbol::Kind::unusable, (entry.info & 15) == 2};
    if (entry.section == undefined_section) {
      symbol.kind = Symbol::Kind::undefined;
    } else if (entry.section == absolute_section) {
      symbol.kind = Symbol::Kind::absolute;
      symbol.value = entry.value;
    } else if (entry.section < first_reserved) {
      if (entry.section >= sections_.size()) damaged("symbol ", i, " is in no section");
      const Section& home = sections_[entry.section];
      if (home.image != absent) {
        if (entry.value > home.size) damaged("symbol ", i, " lies outside its section");
        symbol.kind = Symbol::Kind::in_image;
        symbol.value = home.image + entry.value;
      }
    }
    symbols_.push_back(symbol);
  }
}

void ObjectLinker::read_relocations() {
  auto header = read<FileHeader>(0);
  for (size_t i = 0; i < sections_.size(); ++i) {
    auto entry = read<SectionHeader>(header.section_headers + i * sizeof(SectionHeader));
    if (entry.type != rela && entry.type != rel) continue;
    if (entry.info >= sections_.size()) damaged("relocations ", i, " are for no section");
    const Section& home = sections_[entry.info];
    if (home.image == absent) continue;
    if (entry.type == rel || home.zeros) damaged("relocations ", i, " are of an unexpected kind");
    for (size_t j = 0; j < entry.size / sizeof(RelocationEntry); ++j) {
      auto r = read<RelocationEntry>(entry.offset + j * sizeof(RelocationEntry));
      auto type = static_cast<uint32_t>(r.info);
      auto symbol = static_cast<uint32_t>(r.info >> 32);
      if (type == 0) continue;
      RelocationRule rule = relocation_rule(machine_, type);
      if (!rule.known) damaged("relocation type ", type, " is unknown");
      if (symbol >= symbols_.size()) damaged("a relocation is for no symbol");
      if (r.offset > home.size || home.size - r.offset < rule.width) damaged("a relocation lies outside its section");
      Symbol& target = symbols_[symbol];
      if (target.kind == Symbol::Kind::unusable) damaged("a relocation needs symbol '", target.name, "'");
      bool needs_slot = rule.target == Target::slot || (rule.call && target.kind == Symbol::Kind::undefined);
      if (needs_slot && target.slot == no_slot) target.slot = num_slots_++;
      relocations_.push_back({home.image + r.offset, r.addend, symbol, type});
    }
  }
  slots_ = round_up(size_, slot_size);
  if (num_slots_) size_ = slots_ + uint64_t{num_slots_} * slot_size;
}

size_t ObjectLinker::symbol(const std::string& name) const {
  for (const Symbol& s : symbols_)
    if (s.kind == Symbol::Kind::in_image && s.function && name == s.name) return s.value;
  damaged("it has no function '", name, "'");
}

std::vector<uint8_t> ObjectLinker::link(uint64_t address, const Resolve& resolve) const {
  TD_CHECK(address % alignment == 0);
  std::vector<uint8_t> image(size_);
  for (const Section& s : sections_)
    if (s.image != absent && !s.zeros) std::memcpy(&image[s.image], object_.data() + s.offset, s.size);

  std::vector<uint64_t> addresses(symbols_.size());
  std::vector<bool> known(symbols_.size());
  auto address_of = [&](uint32_t i) {
    const Symbol& s = symbols_[i];
    if (!known[i]) {
      addresses[i] = s.kind == Symbol::Kind::in_image                   ? address + s.value
                     : s.kind == Symbol::Kind::absolute || *s.name == 0 ? s.value
                                                                        : resolve(s.name);
      if (addresses[i] == 0 && s.kind == Symbol::Kind::undefined && *s.name)
        damaged("symbol '", s.name, "' is not in this process");
      known[i] = true;
    }
    return addresses[i];
  };

  for (uint32_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].slot == no_slot) continue;
    uint8_t* slot = &image[slots_ + uint64_t{symbols_[i].slot} * slot_size];
    uint64_t target = address_of(i);
    std::memcpy(slot, &target, sizeof target);
    write_stub(machine_, slot + stub_offset);
  }
  for (const Relocation& r : relocations_) {
    const Symbol& s = symbols_[r.symbol];
    RelocationRule rule = relocation_rule(machine_, r.type);
    uint64_t slot = address + slots_ + uint64_t{s.slot} * slot_size;
    uint64_t target = rule.target == Target::slot ? slot : address_of(r.symbol);
    uint64_t pc = address + r.place;
    if (relocate(machine_, r.type, &image[r.place], pc, target + r.addend)) continue;
    bool through_stub = rule.call && s.slot != no_slot &&
                        relocate(machine_, r.type, &image[r.place], pc, slot + stub_offset + r.addend);
    if (!through_stub) damaged("symbol '", s.name, "' is too far away");
  }
  return image;
}

}  // namespace tandem
