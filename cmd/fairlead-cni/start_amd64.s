#include "textflag.h"

// start is the program's entry (Makefile, GOBUILD): the kernel comes
// here, and it goes on to Go's runtime, which begins as it would have. A build
// without that flag lacks nothing but speed. A call lasts a millisecond, and
// the runtime is made for programs that last:
//
//   - Its monitor thread wakes every 20 us while anything runs. With a timer
//     slack of 10 ms, which threads inherit, the kernel lets it sleep. Nothing
//     else here waits for less.
//   - It starts a thread for each processor that might help. GOMAXPROCS=1 goes
//     without, and is read before any Go code could say it.
//
// The kernel's stack is: argc, argv, 0, environment, 0, more. The program does
// not use its arguments. With its name alone, argv's two words become the end
// of none and one more variable.
TEXT start(SB), NOSPLIT|NOFRAME, $0
	MOVQ $157, AX      // prctl
	MOVQ $29, DI       // PR_SET_TIMERSLACK
	MOVQ $10000000, SI // ns
	SYSCALL
	CMPQ 0(SP), $1
	JNE  run
	MOVQ $0, 0(SP)
	MOVQ $0, 8(SP)
	MOVQ $oneProc<>(SB), AX
	MOVQ AX, 16(SP)

run:
	JMP _rt0_amd64_linux(SB)

DATA oneProc<>+0(SB)/8, $"GOMAXPRO"
DATA oneProc<>+8(SB)/5, $"CS=1\x00"
GLOBL oneProc<>(SB), RODATA|NOPTR, $13
