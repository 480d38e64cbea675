/* Multiply integers: mypyc_setup includes this before every source.

   **Short products.** mypyc makes objects of two integers of which one is beyond 31 bits, such as a rate or a time. Here
   objects are made only where the product is beyond 62 bits.

   **Interrupted products.** Python runs the handlers of signals in the middle of a product of long integers too. If one
   raises, like Ctrl-C's, the product has no result, which mypyc takes for a lack of memory: it aborts the process. So
   the product is computed again, and the exception is raised by the next step of code that Python interprets: of
   let_signals_in at the latest. */

#ifndef WANBED_PRODUCTS_H
#define WANBED_PRODUCTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <signal.h>

static PyObject *wanbed_type, *wanbed_value, *wanbed_trace;
static PyOS_sighandler_t wanbed_on_interrupt;
static int wanbed_waits;

static inline int wanbed_raise(void *unused) {
    (void)unused;
    if (wanbed_on_interrupt != NULL) {
        PyOS_setsig(SIGINT, wanbed_on_interrupt);
        wanbed_on_interrupt = NULL;
    }
    PyErr_Restore(wanbed_type, wanbed_value, wanbed_trace);
    wanbed_waits = 0;
    return -1;
}

/* Take the exception that is set. One that comes while another waits is dropped: the first ends the work already. */
static inline void wanbed_let_wait(void) {
    if (wanbed_waits || Py_AddPendingCall(wanbed_raise, NULL) != 0) {
        PyErr_Clear();
        return;
    }
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        /* A second Ctrl-C ends the process at once, however long the first has to wait. */
        wanbed_on_interrupt = PyOS_setsig(SIGINT, SIG_DFL);
    }
    PyErr_Fetch(&wanbed_type, &wanbed_value, &wanbed_trace);
    wanbed_waits = 1;
}

static inline PyObject *wanbed_multiply(PyObject *left, PyObject *right) {
    PyObject *product = PyNumber_Multiply(left, right);
    if (!PyLong_CheckExact(left) || !PyLong_CheckExact(right)) {
        return product;
    }
    while (product == NULL && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        wanbed_let_wait();
        product = PyNumber_Multiply(left, right);
    }
    return product;
}

#define PyNumber_Multiply wanbed_multiply

#if __has_include("CPy.h") /* Only what multiplies is compiled with it. */
#include "CPy.h"

/* A short integer stands in a word as its double. */
static inline CPyTagged wanbed_product(CPyTagged left, CPyTagged right) {
    Py_ssize_t product;
    if (CPyTagged_CheckShort(left) && CPyTagged_CheckShort(right)
        && !__builtin_mul_overflow((Py_ssize_t)left, CPyTagged_ShortAsSsize_t(right), &product)) {
        return (CPyTagged)product;
    }
    return CPyTagged_Multiply_(left, right);
}

#define CPyTagged_Multiply wanbed_product
#endif

#endif
