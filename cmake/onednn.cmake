# oneDNN for matmul and convolution on the CPU. The wheels put it under the build environment's prefix.
execute_process(COMMAND ${Python_EXECUTABLE} -c "import sys; print(sys.prefix)"
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE TANDEM_PYTHON_PREFIX)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h HINTS ${TANDEM_PYTHON_PREFIX}/include)
find_library(DNNL_LIBRARY dnnl HINTS ${TANDEM_PYTHON_PREFIX}/lib)
