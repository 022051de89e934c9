// Random numbers of samples: setting Tandem's, Python's and NumPy's generators for each; see tandem/data/seeding.py.
#include <cstring>

#include "bindings/bindings.h"
#include "check.h"
#include "tensor/generator.h"

namespace nb = nanobind;

namespace tandem {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr int kWords = 624;  // of a Mersenne twister; its position says how many of them are used up

uint64_t scramble(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// mix(epoch, index) of seeding.py
uint64_t sample_key(uint64_t epoch, uint64_t index) {
  return scramble(scramble(kGolden + epoch) + kGolden + index) + kGolden;
}

// Words of 32 bits, so that eight can be made at a time (the finaliser of MurmurHash3 over a counter, half of the key
// added at its beginning and half in its middle).
inline __attribute__((always_inline)) void fill_by_counter(uint64_t key, uint32_t* words) {
  const auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (uint32_t i = 0; i < kWords; ++i) {
    uint32_t x = low + 0x9E3779B9u * (i + 1);
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x ^= high;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    words[i] = x ^ (x >> 16);
  }
}

void fill_plainly(uint64_t key, uint32_t* words) {
  fill_by_counter(key, words);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void fill_wide(uint64_t key, uint32_t* words) {
  fill_by_counter(key, words);
}
const auto fill = __builtin_cpu_supports("avx2") ? &fill_wide : &fill_plainly;
#else
const auto fill = &fill_plainly;
#endif

struct Twister {
  uint32_t words[kWords];

  explicit Twister(uint64_t key) { fill(key, words); }
};

// The generators as memory. Their own seeding functions take ten times as long as a small sample does to make, and few
// samples draw anything; so the state is written as numbers of a hash, and the twisters do their work when asked.
class SampleSeeds {
 public:
  // python: a random.Random and where in it the words are, behind its position; numpy: where the state of an MT19937
  // is, words first. Either may be missing (0).
  SampleSeeds(nb::object python, size_t offset, nb::object numpy, uintptr_t address) : python_(python), numpy_(numpy) {
    if (offset) {
      auto size = static_cast<size_t>(Py_TYPE(python.ptr())->tp_basicsize);
      if (offset < sizeof(PyObject) + 4 || offset + 4 * kWords > size)
        fail(ErrorKind::Value, "SampleSeeds: the words lie outside of the object");
      python_words_ = reinterpret_cast<char*>(python.ptr()) + offset;
    }
    numpy_words_ = reinterpret_cast<char*>(address);
  }

  // Sets all generators for a sample. True if NumPy's was used since the last time: then it may hold a second normal
  // number ready, which only its own functions can drop.
  bool begin(uint64_t epoch, uint64_t index) {
    uint64_t key = sample_key(epoch, index);
    default_generator()->manual_seed(key);
    if (!python_words_ && !numpy_words_) return false;
    Twister state(key);
    int32_t full = kWords;
    if (python_words_) {
      std::memcpy(python_words_, state.words, sizeof(state.words));
      std::memcpy(python_words_ - 4, &full, 4);
      if (PyObject_SetAttr(python_.ptr(), gauss_next_.ptr(), Py_None)) nb::raise_python_error();
    }
    if (!numpy_words_) return false;
    int32_t position;
    std::memcpy(&position, numpy_words_ + 4 * kWords, 4);
    bool used = !known_ || position != kWords || std::memcmp(numpy_words_, first_, sizeof(first_));
    std::memcpy(numpy_words_, state.words, sizeof(state.words));
    std::memcpy(numpy_words_ + 4 * kWords, &full, 4);
    std::memcpy(first_, state.words, sizeof(first_));
    known_ = true;
    return used;
  }

  nb::object save() const {
    Saved saved{};
    saved.ours = *default_generator();
    if (python_words_) std::memcpy(saved.python, python_words_ - 4, sizeof(saved.python));
    if (numpy_words_) std::memcpy(saved.numpy, numpy_words_, sizeof(saved.numpy));
    return nb::bytes(reinterpret_cast<const char*>(&saved), sizeof(saved));
  }

  void restore(nb::bytes bytes) {
    Saved saved;
    if (bytes.size() != sizeof(saved)) fail(ErrorKind::Value, "SampleSeeds: that is no state of save()");
    std::memcpy(&saved, bytes.c_str(), sizeof(saved));
    *default_generator() = saved.ours;
    if (python_words_) std::memcpy(python_words_ - 4, saved.python, sizeof(saved.python));
    if (numpy_words_) std::memcpy(numpy_words_, saved.numpy, sizeof(saved.numpy));
    known_ = false;
  }

 private:
  struct Saved {
    Generator ours;
    char python[4 * kWords + 4], numpy[4 * kWords + 4];
  };

  nb::object python_, numpy_;
  nb::object gauss_next_ = nb::steal(PyUnicode_InternFromString("gauss_next"));  // a normal number that it has in hand
  char* python_words_ = nullptr;
  char* numpy_words_ = nullptr;
  bool known_ = false;   // whether NumPy's generator was set by us
  uint32_t first_[2]{};  // the first words that it got
};

nb::tuple twister_words(uint64_t key) {
  Twister state(key);
  nb::list words;
  for (uint32_t word : state.words) words.append(word);
  return nb::tuple(words);
}

}  // namespace

void register_sample_seeds(nb::module_& m) {
  nb::class_<SampleSeeds>(m, "SampleSeeds", "Sets the process's random generators for samples.")
      .def(nb::init<nb::object, size_t, nb::object, uintptr_t>(), nb::arg("python").none(), nb::arg("offset"),
           nb::arg("numpy").none(), nb::arg("address"))
      .def("begin", &SampleSeeds::begin, nb::arg("epoch"), nb::arg("index"))
      .def("save", &SampleSeeds::save)
      .def("restore", &SampleSeeds::restore, nb::arg("state"));
  m.def("twister_words", &twister_words, nb::arg("key"));
}

}  // namespace tandem
