// Stand-ins for cuBLASLt and cuDNN: every call succeeds and computes nothing. See driver.c.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAKES(name) \
  int name(void** made, ...) { return *made = (void*)1, 0; }
#define DOES(name) \
  int name(void) { return 0; }

MAKES(cublasLtCreate)
MAKES(cublasLtMatmulDescCreate)
DOES(cublasLtMatmulDescSetAttribute)
MAKES(cublasLtMatrixLayoutCreate)
DOES(cublasLtMatrixLayoutSetAttribute)
DOES(cublasLtMatrixLayoutDestroy)
DOES(cublasLtMatmulDescDestroy)
MAKES(cublasLtMatmulPreferenceCreate)
DOES(cublasLtMatmulPreferenceSetAttribute)
DOES(cublasLtMatmulPreferenceDestroy)
int cublasLtMatmulAlgoGetHeuristic(void* h, void* d, void* a, void* b, void* c, void* e, void* p, int wanted,
                                   void* results, int* found) {
  memset(results, 0, 64 + sizeof(size_t) + 24);  // one, which needs no memory
  return *found = 1, 0;
}
static long long products;
int cublasLtMatmul() { return ++products, 0; }
long long stand_in_products() { return products; }

MAKES(cudnnCreate)
DOES(cudnnSetStream)
MAKES(cudnnCreateTensorDescriptor)
DOES(cudnnDestroyTensorDescriptor)
DOES(cudnnSetTensorNdDescriptor)
MAKES(cudnnCreateFilterDescriptor)
DOES(cudnnSetFilterNdDescriptor)
MAKES(cudnnCreateConvolutionDescriptor)
DOES(cudnnSetConvolutionNdDescriptor)
DOES(cudnnSetConvolutionGroupCount)
DOES(cudnnSetConvolutionMathType)
int cudnnGetConvolutionForwardWorkspaceSize(void* h, void* x, void* w, void* c, void* y, int a, size_t* n) { return *n = 0, 0; }
int cudnnGetConvolutionBackwardDataWorkspaceSize(void* h, void* x, void* w, void* c, void* y, int a, size_t* n) { return *n = 0, 0; }
int cudnnGetConvolutionBackwardFilterWorkspaceSize(void* h, void* x, void* w, void* c, void* y, int a, size_t* n) { return *n = 0, 0; }
struct Performance {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};
#define FINDS(name)                                                                                                \
  int name(void* h, void* a, const void* x, void* b, const void* y, void* c, void* d, void* z, int wanted,          \
           int* count, struct Performance* found, void* workspace, size_t bytes) {                                  \
    memset(found, 0, sizeof *found);                                                                                \
    found->determinism = 1;                                                                                         \
    return *count = 1, 0;                                                                                           \
  }
FINDS(cudnnFindConvolutionForwardAlgorithmEx)
FINDS(cudnnFindConvolutionBackwardDataAlgorithmEx)
FINDS(cudnnFindConvolutionBackwardFilterAlgorithmEx)
DOES(cudnnConvolutionForward)
DOES(cudnnConvolutionBackwardData)
DOES(cudnnConvolutionBackwardFilter)
DOES(cudnnAddTensor)
int cudnnCreateActivationDescriptor(void** made) { return *made = (void*)1, 0; }
DOES(cudnnSetActivationDescriptor)
DOES(cudnnActivationForward)
int cudnnBackendCreateDescriptor(int kind, void** made) { return *made = (void*)1, 0; }
DOES(cudnnBackendDestroyDescriptor)
DOES(cudnnBackendSetAttribute)
DOES(cudnnBackendFinalize)
DOES(cudnnBackendExecute)
int cudnnBackendGetAttribute(void* d, int name, int type, int64_t wanted, int64_t* count, void* values) {
  if (name == 402) *(int64_t*)values = 0;                    // the workspace of a plan
  return *count = name == 202 || name == 300 || name == 402, 0;  // one configuration, its engine; no notes
}
const char* cudnnGetErrorString(int status) { return "an error of the stand-in"; }
