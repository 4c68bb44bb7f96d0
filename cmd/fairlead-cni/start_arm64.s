#include "textflag.h"

// start does what start_amd64.s tells.
TEXT start(SB), NOSPLIT|NOFRAME, $0
	MOVD $167, R8      // prctl
	MOVD $29, R0       // PR_SET_TIMERSLACK
	MOVD $10000000, R1 // ns
	SVC
	SUB  $16, RSP      // struct rlimit
	MOVD $261, R8      // prlimit64
	MOVD ZR, R0
	MOVD $7, R1        // RLIMIT_NOFILE
	MOVD ZR, R2
	MOVD RSP, R3
	SVC
	CBNZ R0, same
	MOVD $3, R4
	MOVD R4, 0(RSP)
	MOVD RSP, R2
	MOVD ZR, R3
	SVC

same:
	ADD  $16, RSP
	MOVD 0(RSP), R0
	CMP  $1, R0
	BNE  run
	MOVD ZR, 0(RSP)
	MOVD ZR, 8(RSP)
	MOVD $oneProc<>(SB), R0
	MOVD R0, 16(RSP)

run:
	B _rt0_arm64_linux(SB)

DATA oneProc<>+0(SB)/8, $"GOMAXPRO"
DATA oneProc<>+8(SB)/5, $"CS=1\x00"
GLOBL oneProc<>(SB), RODATA|NOPTR, $13
