/* A PJRT plugin that stands in for a device: it reads StableHLO text and computes add, subtract, multiply and negate of float32
 * tensors of one shape. Everything else is an error, with a message. It counts what is alive, for the tests to ask. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char text[256]; } Error;
typedef struct { int unused; } Event;
typedef struct { int rank; int64_t sizes[8]; int64_t count; float *data; } Buffer;
typedef struct { char op[16]; int a, b; } Step;
typedef struct { int inputs, steps, results, result[16]; Step step[256]; } Executable;

int64_t alive = 0; /* buffers, events, errors, executables */

static void *fresh(size_t size) { alive++; return calloc(1, size); }
static void *drop(void *p) { alive--; free(p); return NULL; }
static Error *fail(const char *text) {
  Error *e = fresh(sizeof *e);
  snprintf(e->text, sizeof e->text, "%s", text);
  return e;
}

typedef struct { size_t size; void *extension; void *of; } Object;
typedef struct { size_t size; void *extension; void *of; const char *text; size_t length; } Text;
typedef struct { size_t size; void *extension; void *of; void *inner; } Inner;
typedef struct { size_t size; void *extension; void *of; size_t count; } Count;
typedef struct { size_t size; void *extension; void *of; void *const *items; size_t count; } ListOf;
typedef struct { size_t size; void *extension; void *of; const int64_t *sizes; size_t count; } Sizes;
typedef struct { size_t size; void *extension; void *unused[6]; void *client; void *more[2]; } CreateClient;
typedef struct { size_t size; void *extension; const char *code; size_t code_size; const char *format; size_t format_size; } Program;
typedef struct { size_t size; void *extension; void *of; Program *program; const char *o; size_t n; void *executable; } Compile;
typedef struct {
  size_t size; void *extension; void *of; const void *data; int type; const int64_t *sizes; size_t num_sizes;
  const int64_t *strides; size_t num_strides; int semantics; void *device, *memory, *layout, *done, *buffer;
} FromHost;
typedef struct { size_t size; void *extension; void *of; void *layout; void *data; size_t bytes; void *event; } ToHost;
typedef struct {
  size_t size; void *extension; void *of; void *options; Buffer *const *const *arguments; size_t num_devices, num_arguments;
  Buffer **const *outputs; Event **events; void *device;
} Execute;

static Error *error_destroy(Object *a) { drop(a->of); return NULL; }
static Error *error_message(Text *a) { a->text = ((Error *)a->of)->text, a->length = strlen(a->text); return NULL; }
static Error *nothing(void *a) { (void)a; return NULL; }
static Error *destroy(Object *a) { drop(a->of); return NULL; }
static Error *buffer_destroy(Object *a) { free(((Buffer *)a->of)->data); drop(a->of); return NULL; }
static int client, device;
static void *devices[] = {&device};
static Error *client_create(CreateClient *a) { a->client = &client; return NULL; }
static Error *platform_name(Text *a) { a->text = "stand-in", a->length = 8; return NULL; }
static Error *addressable(ListOf *a) { a->items = devices, a->count = 1; return NULL; }

/* The number of a value: arguments first, then steps. */
static int named(char names[][64], int count, const char *name, size_t length) {
  for (int i = 0; i < count; ++i)
    if (strlen(names[i]) == length && !strncmp(names[i], name, length)) return i;
  return -1;
}
static size_t name_length(const char *p) { return strcspn(p, " ,:)\n"); }

static Error *compile(Compile *a) {
  static char names[300][64];
  int count = 0;
  char *code = strndup(a->program->code, a->program->code_size);
  Executable *made = fresh(sizeof *made);
  char *main_at = strstr(code, "@main(");
  Error *error = NULL;
  if (!main_at) error = fail("there is no @main");
  for (char *p = main_at; !error && p && *p && *p != '{'; ++p)
    if (*p == '%') {
      size_t n = name_length(p);
      snprintf(names[count++], 64, "%.*s", (int)n, p);
    }
  made->inputs = count;
  for (char *line = main_at ? strchr(main_at, '{') : NULL; !error && line; line = strchr(line, '\n')) {
    line += strspn(line, " \n{");
    if (!strncmp(line, "return ", 7)) {
      for (char *p = line + 7; *p && *p != ':'; ++p)
        if (*p == '%') made->result[made->results++] = named(names, count, p, name_length(p));
      break;
    }
    char left[64], op[64];
    if (sscanf(line, "%63s = %63s", left, op) != 2) break;
    if (strncmp(op, "stablehlo.", 10)) { error = fail(op); break; }
    Step *s = &made->step[made->steps++];
    snprintf(s->op, sizeof s->op, "%s", op + 10);
    char *first = strchr(strstr(line, op), '%'), *second = first ? strchr(first + 1, '%') : NULL;
    s->a = first ? named(names, count, first, name_length(first)) : -1;
    s->b = second && second < strchr(first, ':') ? named(names, count, second, name_length(second)) : s->a;
    const char *known[] = {"add", "subtract", "multiply", "negate"};
    int found = 0;
    for (int i = 0; i < 4; ++i) found |= !strcmp(known[i], s->op);
    if (!found || s->a < 0) {
      char text[200];
      snprintf(text, sizeof text, "the stand-in does not know %s", op);
      error = fail(text);
    }
    snprintf(names[count++], 64, "%s", left);
  }
  free(code);
  if (error) drop(made);
  else a->executable = made;
  return error;
}

static Error *from_host(FromHost *a) {
  if (a->type != 11) return fail("the stand-in has float32 alone");
  Buffer *b = fresh(sizeof *b);
  b->rank = (int)a->num_sizes, b->count = 1;
  for (int i = 0; i < b->rank; ++i) b->sizes[i] = a->sizes[i], b->count *= a->sizes[i];
  b->data = malloc(sizeof(float) * (size_t)b->count + 1);
  memcpy(b->data, a->data, sizeof(float) * (size_t)b->count);
  a->buffer = b, a->done = fresh(sizeof(Event));
  return NULL;
}
static Error *dimensions(Sizes *a) { Buffer *b = a->of; a->sizes = b->sizes, a->count = (size_t)b->rank; return NULL; }
static Error *to_host(ToHost *a) {
  Buffer *b = a->of;
  if (a->bytes < sizeof(float) * (size_t)b->count) return fail("too little memory");
  memcpy(a->data, b->data, sizeof(float) * (size_t)b->count);
  a->event = fresh(sizeof(Event));
  return NULL;
}
static Error *get_executable(Inner *a) { Executable *e = fresh(sizeof *e); *e = *(Executable *)a->of; a->inner = e; return NULL; }
static Error *num_outputs(Count *a) { a->count = (size_t)((Executable *)a->of)->results; return NULL; }

static Buffer *like(const Buffer *from) {
  Buffer *b = fresh(sizeof *b);
  *b = *from;
  b->data = malloc(sizeof(float) * (size_t)b->count + 1);
  return b;
}
static Error *execute(Execute *a) {
  Executable *e = a->of;
  if ((int)a->num_arguments != e->inputs) return fail("another number of arguments");
  Buffer *values[300];
  for (int i = 0; i < e->inputs; ++i) values[i] = a->arguments[0][i];
  for (int i = 0; i < e->steps; ++i) {
    const Step *s = &e->step[i];
    const Buffer *x = values[s->a], *y = values[s->b];
    Buffer *z = values[e->inputs + i] = like(x);
    for (int64_t k = 0; k < z->count; ++k)
      z->data[k] = !strcmp(s->op, "add") ? x->data[k] + y->data[k] : !strcmp(s->op, "subtract") ? x->data[k] - y->data[k]
                 : !strcmp(s->op, "multiply") ? x->data[k] * y->data[k] : -x->data[k];
  }
  for (int i = 0; i < e->results; ++i) {
    const Buffer *from = values[e->result[i]];
    Buffer *copy = like(from);
    memcpy(copy->data, from->data, sizeof(float) * (size_t)from->count);
    a->outputs[0][i] = copy;
  }
  for (int i = 0; i < e->steps; ++i) { free(values[e->inputs + i]->data); drop(values[e->inputs + i]); }
  if (a->events) a->events[0] = fresh(sizeof(Event));
  return NULL;
}

struct { size_t size; void *extension; struct { size_t size; void *extension; int major, minor; } version; void *functions[90]; } table;

void *GetPjrtApi(void) {
  void **f = table.functions;
  table.size = sizeof table;
  f[0] = error_destroy, f[1] = error_message, f[3] = nothing, f[5] = destroy, f[8] = nothing, f[10] = client_create, f[11] = nothing;
  f[12] = platform_name, f[16] = addressable, f[20] = compile, f[22] = from_host, f[40] = destroy, f[44] = num_outputs, f[50] = destroy;
  f[51] = get_executable, f[55] = execute, f[58] = buffer_destroy, f[60] = dimensions, f[70] = to_host;
  return &table;
}
