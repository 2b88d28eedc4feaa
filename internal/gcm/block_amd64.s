//go:build amd64 && !purego

#include "textflag.h"

// What is done once a key: see schedule_amd64.go.

// func subWord(w uint32) uint32
TEXT ·subWord(SB), NOSPLIT, $0-12
	MOVL             w+0(FP), AX
	VMOVD            AX, X0
	VPSHUFD          $0, X0, X0
	VAESKEYGENASSIST $0, X0, X0
	VMOVD            X0, AX
	MOVL             AX, ret+8(FP)
	RET

// func encryptBlock(s *schedule, dst, src *block)
TEXT ·encryptBlock(SB), NOSPLIT, $0-24
	MOVQ    s+0(FP), AX
	MOVQ    dst+8(FP), DI
	MOVQ    src+16(FP), SI
	MOVQ    512(AX), CX
	ADDQ    $272, AX
	VMOVDQU (SI), X0
	VPXOR   (AX), X0, X0

round:
	ADDQ    $16, AX
	DECQ    CX
	JZ      last
	VAESENC (AX), X0, X0
	JMP     round

last:
	VAESENCLAST (AX), X0, X0
	VMOVDQU     X0, (DI)
	RET

// func multiply(z, x, y *block)
TEXT ·multiply(SB), NOSPLIT, $0-24
	MOVQ         z+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         y+16(FP), DX
	VMOVDQU      (SI), X0
	VMOVDQU      (DX), X1
	MOVQ         $0xc200000000000000, AX
	VMOVQ        AX, X2
	VPCLMULQDQ   $0x00, X1, X0, X3
	VPCLMULQDQ   $0x11, X1, X0, X4
	VPCLMULQDQ   $0x01, X1, X0, X5
	VPCLMULQDQ   $0x10, X1, X0, X6
	VPXOR        X6, X5, X5
	VPCLMULQDQ   $0x00, X2, X3, X6
	VPSHUFD      $0x4e, X3, X3
	VPXOR        X3, X5, X5
	VPXOR        X6, X5, X5
	VPCLMULQDQ   $0x00, X2, X5, X6
	VPSHUFD      $0x4e, X5, X5
	VPXOR        X5, X4, X4
	VPXOR        X6, X4, X4
	VMOVDQU      X4, (DI)
	RET
