#include "bindings/bindings.h"

NB_MODULE(_runtime, m) {
  tandem::register_library(m);
  tandem::register_object_loader(m);
}
