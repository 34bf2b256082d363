/* trigen inside XLA programs (JAX): a handler of XLA's FFI (foreign function interface), platform CUDA. It needs
 * no header of XLA's and one library serves every version from jaxlib 0.6 on. The Python package registers and
 * calls it (trigen.jax); a C or C++ program that loads XLA programs registers it under the same name:
 *
 *   name "trigen_call", stages initialize and execute: trigen_xla_call in both
 *
 * A call has an attribute `problem`: the text of a forward, grad_input or grad_weight problem without
 * accumulate, of gram with B=1 and layout=btd, of scan, scan_grad_input or scan_grad_weight, or of newton_schulz; and
 * for gram alpha, beta and gamma, f32 scalars (left out: 1, 1, 0). Its buffers are dense and in the problem's order:
 *
 *   forward:     x, w, then bias, gate, residual as the problem has them -> y, then pre, then workspace
 *   grad_input:  dy, w, then residual                                    -> dx, then workspace
 *   grad_weight: dy, x                                                   -> dW, then grad_bias, then workspace
 *   gram:        a, b [H,T,D] (one buffer twice where B is A), then c [H,T,T] -> d [H,T,T], then workspace
 *   newton_schulz: x, w [3K+1]                                          -> y, then workspace
 *   scan:        as forward, w [H,4,T]
 *   scan_grad_input:  as grad_input, w [H,4,T]
 *   scan_grad_weight: dy, x, w [H,4,T]              -> dw [H,4,T], then grad_bias, then dx, then workspace
 *
 * The workspace is a u8 buffer of at least trigen_xla_workspace_size bytes. The plan is made when XLA
 * initialises a program; executing it takes no lock, allocates nothing and does not synchronise, and may be
 * captured into a command buffer (the handler says so). */
#ifndef TRIGEN_TRIGEN_XLA_H
#define TRIGEN_TRIGEN_XLA_H

#include <trigen/trigen.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The handler: XLA_FFI_Error* (XLA_FFI_CallFrame*). */
TRIGEN_API void* trigen_xla_call(void* call_frame) TRIGEN_NOEXCEPT;
/* The runtime of calls from now on: options as of trigen_runtime_create (NULL: the defaults, which hold without
 * any call of this). Plans made so far are not used again, and stay in memory: running programs may hold them.
 * Waits for the plans that other threads make. */
TRIGEN_API trigen_status trigen_xla_configure(const trigen_runtime_options* options) TRIGEN_NOEXCEPT;
/* Makes the plan of a problem (its text) for a device (CUDA ordinal), as a call would, and says what workspace
 * it needs. Threads that ask for different problems compile side by side, those that ask for the same share its
 * plan; XLA initialises the calls of a program one after the other, and finds what was asked for here. */
TRIGEN_API trigen_status trigen_xla_workspace_size(const char* problem, int device,
                                                   size_t* bytes) TRIGEN_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TRIGEN_TRIGEN_XLA_H */
