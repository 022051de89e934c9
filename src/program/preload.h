// Loads a shared library into the process beside what else goes on, so that whoever opens it later finds it there.
#pragma once
#include <string>

namespace tandem {

// Begins to load a library, once per process. It is waited for before the process forks or ends: the loader's locks
// must be free then. A library that cannot be loaded is no error here.
void preload(std::string path);

// Waits until what preload() began is there.
void finish_preload();

}  // namespace tandem
