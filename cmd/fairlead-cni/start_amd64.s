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
//   - It looks for a limit on processors in its cgroup, whatever GOMAXPROCS is:
//     it reads all mounts of the node, of which every pod has several. Where no
//     file can be opened it goes without, and without the size of huge pages.
//     Package syscall raises the limit of open files to all that is allowed, as
//     in any Go program, before main.
//
// The kernel's stack is: argc, argv, 0, environment, 0, more. The program does
// not use its arguments. With its name alone, argv's two words become the end
// of none and one more variable.
TEXT start(SB), NOSPLIT|NOFRAME, $0
	MOVQ $157, AX      // prctl
	MOVQ $29, DI       // PR_SET_TIMERSLACK
	MOVQ $10000000, SI // ns
	SYSCALL
	SUBQ $16, SP       // struct rlimit: soft, hard
	MOVQ $302, AX      // prlimit64
	MOVQ $0, DI        // of this process
	MOVQ $7, SI        // RLIMIT_NOFILE
	MOVQ $0, DX        // nothing new
	MOVQ SP, R10
	SYSCALL
	TESTQ AX, AX
	JNZ  same
	MOVQ $3, 0(SP)     // standard input, output and error
	MOVQ $302, AX
	MOVQ SP, DX
	MOVQ $0, R10
	SYSCALL

same:
	ADDQ $16, SP
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
