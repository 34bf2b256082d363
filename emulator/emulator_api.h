// Entries of the emulated device beyond the Driver API. C ABI; thread-safe.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/// Changes options: "target=sm_70 devices=2 threads=0 async=late|early|random:SEED|shuffled:SEED lanes=order|random:SEED
/// checks=all|none|races,uninitialised reports=fail|print|quiet", any part of it. Target and devices can be
/// set before the first context is made, the others at any time. Returns 0, or -1 with the reason in
/// trigen_emulator_last_error.
int trigen_emulator_configure(const char* options);

/// Why the last failing call of this thread failed, in words; valid until the thread's next call.
const char* trigen_emulator_last_error(void);

/// JSON {"launches":N,"kernels":{"name":{"launches":N,...counters}}} of a device since the last reset. Writes
/// at most `size` bytes with a final 0 and returns the size needed, the final 0 included; 0 for an unknown
/// device.
unsigned long long trigen_emulator_counters(int device, char* buffer, unsigned long long size);
void trigen_emulator_reset_counters(int device);

/// Faults found so far: a JSON array of {fault, kernel, line, instruction, block, thread, count, detail}.
unsigned long long trigen_emulator_reports(int device, char* buffer, unsigned long long size);
/// Forgets the reports and the sticky error that a failed launch left in the device's context.
void trigen_emulator_clear_reports(int device);

/// The next launch counts as one behind launches of its stream that may have done anything, to all of the
/// device's memory, and may still run if it is an early one (programmatic dependent launch). Until something
/// waits for the device, or the next launch. -1: unknown device.
int trigen_emulator_assume_busy(int device);

/// Marks the allocation that holds the address as read-only for kernels (1) or not (0). -1: no such
/// allocation.
int trigen_emulator_set_read_only(unsigned long long address, int read_only);
/// Makes bytes of an allocation count as never written. -1: not inside one allocation.
int trigen_emulator_forget(unsigned long long address, unsigned long long bytes);

#ifdef __cplusplus
}
#endif
