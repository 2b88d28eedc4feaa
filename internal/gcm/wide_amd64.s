//go:build amd64 && !purego

#include "textflag.h"

// Sixteen blocks are in work at once: four registers of four. A register holds
// a block with its bytes turned around wherever it is counted or hashed, because
// then a carry-less product needs no more than its bits in that order; AES has
// its bytes as they lie in memory.
//
//	Z0-Z3    AES state, then the output
//	Z4-Z7    blocks to hash; what they come from in Z25-Z28 (open)
//	Z8       round key
//	Z9-Z11   low, middle and high part of the product
//	Z12-Z15  for the moment
//	Z16      the next four counters; Z17 four in each lane
//	Z18      order of bytes that turns a block around
//	Z19      the field's polynomial, see REDUCE
//	Z20-Z23  H^16 to H^1
//	X24      the hash so far; the lanes above are zero
//	X29      the block that covers the tag
//
//	SI DI CX  input, output, bytes left
//	R8        schedule; R12 its first round key, R13 that from which ten are left
//	R9        rounds
#define OFFKEYS 272
#define OFFROUNDS 512
#define OFFH 256

DATA swap<>+0(SB)/8, $0x08090a0b0c0d0e0f
DATA swap<>+8(SB)/8, $0x0001020304050607
GLOBL swap<>(SB), RODATA|NOPTR, $16

// Counters begin at 1, which is the tag's.
DATA start<>+0(SB)/8, $2
DATA start<>+8(SB)/8, $0
DATA start<>+16(SB)/8, $3
DATA start<>+24(SB)/8, $0
DATA start<>+32(SB)/8, $4
DATA start<>+40(SB)/8, $0
DATA start<>+48(SB)/8, $5
DATA start<>+56(SB)/8, $0
GLOBL start<>(SB), RODATA|NOPTR, $64

DATA step<>+0(SB)/8, $4
DATA step<>+8(SB)/8, $0
GLOBL step<>(SB), RODATA|NOPTR, $16

DATA one<>+0(SB)/8, $1
DATA one<>+8(SB)/8, $0
GLOBL one<>(SB), RODATA|NOPTR, $16

DATA poly<>+0(SB)/8, $0xc200000000000000
DATA poly<>+8(SB)/8, $0xc200000000000000
GLOBL poly<>(SB), RODATA|NOPTR, $16

// SETUP loads constants and makes the counters of the nonce at (AX).
#define SETUP \
	LEAQ            OFFKEYS(R8), R12; \
	MOVQ            OFFROUNDS(R8), R9; \
	MOVQ            R9, R13; \
	SHLQ            $4, R13; \
	LEAQ            -160(R12)(R13*1), R13; \
	VBROADCASTI32X4 swap<>(SB), Z18; \
	VBROADCASTI32X4 step<>(SB), Z17; \
	VBROADCASTI32X4 poly<>(SB), Z19; \
	VMOVQ           (AX), X12; \
	VPINSRD         $2, 8(AX), X12, X12; \
	VPSHUFB         X18, X12, X12; \
	VPADDD          one<>(SB), X12, X29; \
	VPSHUFB         X18, X29, X29; \
	VSHUFI64X2      $0, Z12, Z12, Z12; \
	VPADDD          start<>(SB), Z12, Z16; \
	VPXORQ          X24, X24, X24

// POWERS loads what sixteen blocks are multiplied by.
#define POWERS \
	VMOVDQU64 16(R8), Z20; \
	VMOVDQU64 80(R8), Z21; \
	VMOVDQU64 144(R8), Z22; \
	VMOVDQU64 208(R8), Z23

// COUNT makes sixteen counter blocks and adds the first round key.
#define COUNT \
	VBROADCASTI32X4 (R12), Z8; \
	VPSHUFB         Z18, Z16, Z0; \
	VPADDD          Z17, Z16, Z16; \
	VPSHUFB         Z18, Z16, Z1; \
	VPADDD          Z17, Z16, Z16; \
	VPSHUFB         Z18, Z16, Z2; \
	VPADDD          Z17, Z16, Z16; \
	VPSHUFB         Z18, Z16, Z3; \
	VPADDD          Z17, Z16, Z16; \
	VPXORQ          Z8, Z0, Z0; \
	VPXORQ          Z8, Z1, Z1; \
	VPXORQ          Z8, Z2, Z2; \
	VPXORQ          Z8, Z3, Z3

// ROUND is one round of AES on sixteen blocks with the key at OFF(R).
#define ROUND(OFF, R) \
	VBROADCASTI32X4 OFF(R), Z8; \
	VAESENC         Z8, Z0, Z0; \
	VAESENC         Z8, Z1, Z1; \
	VAESENC         Z8, Z2, Z2; \
	VAESENC         Z8, Z3, Z3

// ROUND17 is ROUND on the tag's block too, ROUND5 on four blocks and the tag's.
#define ROUND17(OFF, R) \
	ROUND(OFF, R); \
	VAESENC         X8, X29, X29

#define ROUND5(OFF, R) \
	VBROADCASTI32X4 OFF(R), Z8; \
	VAESENC         Z8, Z0, Z0; \
	VAESENC         X8, X29, X29

// MUL multiplies the blocks D by the powers P: the product's parts are LL, M and
// HH, the middle one times x^64.
#define MUL(P, D, LL, M, HH, T) \
	VPCLMULQDQ $0x00, P, D, LL; \
	VPCLMULQDQ $0x11, P, D, HH; \
	VPCLMULQDQ $0x01, P, D, M; \
	VPCLMULQDQ $0x10, P, D, T; \
	VPXORQ     T, M, M

// MULADD adds a product to the one in Z9, Z10 and Z11.
#define MULADD(P, D) \
	VPCLMULQDQ $0x00, P, D, Z12; \
	VPCLMULQDQ $0x11, P, D, Z13; \
	VPCLMULQDQ $0x01, P, D, Z14; \
	VPCLMULQDQ $0x10, P, D, Z15; \
	VPXORQ     Z12, Z9, Z9; \
	VPXORQ     Z13, Z11, Z11; \
	VPTERNLOGQ $0x96, Z15, Z14, Z10

// REDUCE takes a product of 256 bits into the field, in HH. The lowest word
// stands for x^192 to x^255. It goes one word up, as itself (for the 1 of x^128 =
// 1 + x + x^2 + x^7) and times x + x^2 + x^7, which is 0xc2 because of the place
// that carry-less products are short of; that clears the word. Twice.
#define REDUCE(LL, M, HH, POLY, T) \
	VPCLMULQDQ $0x00, POLY, LL, T; \
	VPSHUFD    $0x4e, LL, LL; \
	VPTERNLOGQ $0x96, T, LL, M; \
	VPCLMULQDQ $0x00, POLY, M, T; \
	VPSHUFD    $0x4e, M, M; \
	VPTERNLOGQ $0x96, T, M, HH

// SUM adds the four lanes of Z11 to the hash.
#define SUM \
	VEXTRACTI64X4 $1, Z11, Y12; \
	VPXOR         Y12, Y11, Y11; \
	VEXTRACTI128  $1, Y11, X12; \
	VPXORQ        X12, X11, X24

// HASH hashes the blocks in Z4 to Z7.
#define HASH \
	VPXORQ Z24, Z4, Z4; \
	MUL(Z20, Z4, Z9, Z10, Z11, Z12); \
	MULADD(Z21, Z5); \
	MULADD(Z22, Z6); \
	MULADD(Z23, Z7); \
	REDUCE(Z9, Z10, Z11, Z19, Z12); \
	SUM

// FOUR is the rounds that AES-256 has before the last ten.
#define FOUR \
	ROUND(16, R12); \
	ROUND(32, R12); \
	ROUND(48, R12); \
	ROUND(64, R12)

// NINE is all but the last round.
#define NINE \
	ROUND(16, R13); \
	ROUND(32, R13); \
	ROUND(48, R13); \
	ROUND(64, R13); \
	ROUND(80, R13); \
	ROUND(96, R13); \
	ROUND(112, R13); \
	ROUND(128, R13); \
	ROUND(144, R13)

// NINEHASH is NINE with HASH between.
#define NINEHASH \
	VPXORQ Z24, Z4, Z4; \
	ROUND(16, R13); \
	MUL(Z20, Z4, Z9, Z10, Z11, Z12); \
	ROUND(32, R13); \
	MULADD(Z21, Z5); \
	ROUND(48, R13); \
	MULADD(Z22, Z6); \
	ROUND(64, R13); \
	MULADD(Z23, Z7); \
	ROUND(80, R13); \
	REDUCE(Z9, Z10, Z11, Z19, Z12); \
	ROUND(96, R13); \
	SUM; \
	ROUND(112, R13); \
	ROUND(128, R13); \
	ROUND(144, R13)

// LAST is the last round: its key and the input are added in one.
#define LAST(A, B, C, D) \
	VBROADCASTI32X4 160(R13), Z8; \
	VPXORQ          A, Z8, Z12; \
	VPXORQ          B, Z8, Z13; \
	VPXORQ          C, Z8, Z14; \
	VPXORQ          D, Z8, Z15; \
	VAESENCLAST     Z12, Z0, Z0; \
	VAESENCLAST     Z13, Z1, Z1; \
	VAESENCLAST     Z14, Z2, Z2; \
	VAESENCLAST     Z15, Z3, Z3

#define STORE \
	VMOVDQU64 Z0, (DI); \
	VMOVDQU64 Z1, 64(DI); \
	VMOVDQU64 Z2, 128(DI); \
	VMOVDQU64 Z3, 192(DI); \
	ADDQ      $256, DI; \
	ADDQ      $256, SI; \
	SUBQ      $256, CX

// TURN turns what is to be hashed around.
#define TURN(A, B, C, D) \
	VPSHUFB Z18, A, Z4; \
	VPSHUFB Z18, B, Z5; \
	VPSHUFB Z18, C, Z6; \
	VPSHUFB Z18, D, Z7

// MASKS makes K1 to K4 of the bytes left, at most 255. A masked load touches
// nothing beyond them, a masked store neither.
#define MASKS \
	XORL    R14, R14; \
	MOVQ    $-1, BX; \
	MOVQ    CX, DX; \
	BZHIQ   DX, BX, AX; \
	KMOVQ   AX, K1; \
	SUBQ    $64, DX; \
	CMOVQCS R14, DX; \
	BZHIQ   DX, BX, AX; \
	KMOVQ   AX, K2; \
	SUBQ    $64, DX; \
	CMOVQCS R14, DX; \
	BZHIQ   DX, BX, AX; \
	KMOVQ   AX, K3; \
	SUBQ    $64, DX; \
	CMOVQCS R14, DX; \
	BZHIQ   DX, BX, AX; \
	KMOVQ   AX, K4

// LOAD loads what is left, with zeros after it.
#define LOAD \
	VMOVDQU8.Z (SI), K1, Z25; \
	VMOVDQU8.Z 64(SI), K2, Z26; \
	VMOVDQU8.Z 128(SI), K3, Z27; \
	VMOVDQU8.Z 192(SI), K4, Z28

// TAGSTART and TAGEND are the first and last round of the tag's block.
#define TAGSTART \
	VPXORQ X8, X29, X29

#define TAGEND \
	VAESENCLAST X8, X29, X29

// FOUR17, NINE17, FOUR5 and NINE5 are FOUR and NINE with the tag's block.
#define FOUR17 \
	ROUND17(16, R12); \
	ROUND17(32, R12); \
	ROUND17(48, R12); \
	ROUND17(64, R12)

#define NINE17 \
	ROUND17(16, R13); \
	ROUND17(32, R13); \
	ROUND17(48, R13); \
	ROUND17(64, R13); \
	ROUND17(80, R13); \
	ROUND17(96, R13); \
	ROUND17(112, R13); \
	ROUND17(128, R13); \
	ROUND17(144, R13)

#define FOUR5 \
	ROUND5(16, R12); \
	ROUND5(32, R12); \
	ROUND5(48, R12); \
	ROUND5(64, R12)

#define NINE5 \
	ROUND5(16, R13); \
	ROUND5(32, R13); \
	ROUND5(48, R13); \
	ROUND5(64, R13); \
	ROUND5(80, R13); \
	ROUND5(96, R13); \
	ROUND5(112, R13); \
	ROUND5(128, R13); \
	ROUND5(144, R13)

// TAILPOWERS points R14 to the power of the first block left, so that the last
// one meets H^2. After it come blocks of zeros, whatever they are multiplied by.
#define TAILPOWERS \
	LEAQ 15(CX), DX; \
	SHRQ $4, DX; \
	SHLQ $4, DX; \
	LEAQ OFFH(R8), R14; \
	SUBQ DX, R14

// FINISH adds the block of lengths, of AX bytes of text, times H and makes the
// tag in X24.
#define FINISH(AAD) \
	MOVQ       AAD, DX; \
	SHLQ       $3, AX; \
	SHLQ       $3, DX; \
	VMOVQ      AX, X4; \
	VPINSRQ    $1, DX, X4, X4; \
	VMOVDQU    OFFH(R8), X5; \
	MULADD(Z5, Z4); \
	REDUCE(Z9, Z10, Z11, Z19, Z12); \
	SUM; \
	VPSHUFB    X18, X24, X24; \
	VPXORQ     X29, X24, X24

// AADBLOCK hashes the next block of additional data, of R11 bytes at R10.
#define AADBLOCK \
	MOVQ       $16, DX; \
	CMPQ       R11, DX; \
	CMOVQLT    R11, DX; \
	MOVQ       $-1, BX; \
	BZHIQ      DX, BX, BX; \
	KMOVQ      BX, K1; \
	VMOVDQU8.Z (R10), K1, X4; \
	VPSHUFB    X18, X4, X4; \
	VPXORQ     X24, X4, X4; \
	VMOVDQU    OFFH(R8), X5; \
	MUL(X5, X4, X9, X10, X11, X12); \
	REDUCE(X9, X10, X11, X19, X12); \
	VMOVDQA64  X11, X24; \
	ADDQ       DX, R10; \
	SUBQ       DX, R11

// CLEAR leaves nothing of key or text in registers. It also tells the processor
// that their wide parts are unused, so the kernel needn't save 2 KB of them with
// the thread: VZEROUPPER says it of the first sixteen only.
#define CLEAR \
	VPXORQ X16, X16, X16; \
	VPXORQ X17, X17, X17; \
	VPXORQ X18, X18, X18; \
	VPXORQ X19, X19, X19; \
	VPXORQ X20, X20, X20; \
	VPXORQ X21, X21, X21; \
	VPXORQ X22, X22, X22; \
	VPXORQ X23, X23, X23; \
	VPXORQ X24, X24, X24; \
	VPXORQ X25, X25, X25; \
	VPXORQ X26, X26, X26; \
	VPXORQ X27, X27, X27; \
	VPXORQ X28, X28, X28; \
	VPXORQ X29, X29, X29; \
	VZEROALL

// func seal(s *schedule, dst, src, tail []byte, nonce *[nonceSize]byte, aad []byte)
TEXT ·seal(SB), NOSPLIT, $0-112
	MOVQ s+0(FP), R8
	MOVQ dst_base+8(FP), DI
	MOVQ src_base+32(FP), SI
	MOVQ src_len+40(FP), CX
	MOVQ nonce+80(FP), AX
	MOVQ aad_base+88(FP), R10
	MOVQ aad_len+96(FP), R11
	SETUP

aad:
	TESTQ R11, R11
	JZ    text
	AADBLOCK
	JMP   aad

text:
	CMPQ CX, $256
	JB   tail
	POWERS
	COUNT
	CMPQ R9, $10
	JEQ  first
	FOUR

first:
	NINE
	LAST((SI), 64(SI), 128(SI), 192(SI))
	STORE
	TURN(Z0, Z1, Z2, Z3)
	CMPQ CX, $256
	JB   pending
	PCALIGN $64

more: // Z4 to Z7 are hashed while the next are encrypted
	COUNT
	CMPQ R9, $10
	JEQ  ten
	FOUR

ten:
	NINEHASH
	LAST((SI), 64(SI), 128(SI), 192(SI))
	STORE
	TURN(Z0, Z1, Z2, Z3)
	CMPQ CX, $256
	JAE  more

pending:
	HASH

tail:
	MOVQ tail_base+56(FP), SI
	MOVQ tail_len+64(FP), CX
	MASKS
	LOAD
	TAILPOWERS
	COUNT
	TAGSTART
	CMPQ CX, $64
	JBE  short
	CMPQ R9, $10
	JEQ  tail10
	FOUR17

tail10:
	NINE17
	LAST(Z25, Z26, Z27, Z28)
	TAGEND
	VMOVDQU8   Z0, K1, (DI)
	VMOVDQU8   Z1, K2, 64(DI)
	VMOVDQU8   Z2, K3, 128(DI)
	VMOVDQU8   Z3, K4, 192(DI)
	VMOVDQU8.Z Z0, K1, Z0
	VMOVDQU8.Z Z1, K2, Z1
	VMOVDQU8.Z Z2, K3, Z2
	VMOVDQU8.Z Z3, K4, Z3
	TURN(Z0, Z1, Z2, Z3)
	VPXORQ     Z24, Z4, Z4
	MUL((R14), Z4, Z9, Z10, Z11, Z12)
	MULADD(64(R14), Z5)
	MULADD(128(R14), Z6)
	MULADD(192(R14), Z7)
	JMP        finish

short:
	CMPQ R9, $10
	JEQ  short10
	FOUR5

short10:
	NINE5
	VBROADCASTI32X4 160(R13), Z8
	VPXORQ          Z25, Z8, Z12
	VAESENCLAST     Z12, Z0, Z0
	TAGEND
	VMOVDQU8        Z0, K1, (DI)
	VMOVDQU8.Z      Z0, K1, Z0
	VPSHUFB         Z18, Z0, Z4
	VPXORQ          Z24, Z4, Z4
	MUL((R14), Z4, Z9, Z10, Z11, Z12)

finish:
	MOVQ      src_len+40(FP), AX
	ADDQ      CX, AX
	FINISH(aad_len+96(FP))
	VMOVDQU64 X24, (DI)(CX*1)
	CLEAR
	RET

// func open(s *schedule, dst, src []byte, nonce *[nonceSize]byte, aad []byte, tag *[tagSize]byte)
TEXT ·open(SB), NOSPLIT, $0-96
	MOVQ s+0(FP), R8
	MOVQ dst_base+8(FP), DI
	MOVQ src_base+32(FP), SI
	MOVQ src_len+40(FP), CX
	MOVQ nonce+56(FP), AX
	MOVQ aad_base+64(FP), R10
	MOVQ aad_len+72(FP), R11
	SETUP

aad:
	TESTQ R11, R11
	JZ    text
	AADBLOCK
	JMP   aad

text:
	CMPQ CX, $256
	JB   tail
	POWERS
	PCALIGN $64

more:
	VMOVDQU64 (SI), Z25
	VMOVDQU64 64(SI), Z26
	VMOVDQU64 128(SI), Z27
	VMOVDQU64 192(SI), Z28
	TURN(Z25, Z26, Z27, Z28)
	COUNT
	CMPQ R9, $10
	JEQ  ten
	FOUR

ten:
	NINEHASH
	LAST(Z25, Z26, Z27, Z28)
	STORE
	CMPQ CX, $256
	JAE  more

tail:
	MASKS
	LOAD
	TAILPOWERS
	COUNT
	TAGSTART
	VPSHUFB Z18, Z25, Z4
	VPXORQ  Z24, Z4, Z4
	MUL((R14), Z4, Z9, Z10, Z11, Z12)
	CMPQ    CX, $64
	JBE     short
	VPSHUFB Z18, Z26, Z5
	VPSHUFB Z18, Z27, Z6
	VPSHUFB Z18, Z28, Z7
	MULADD(64(R14), Z5)
	MULADD(128(R14), Z6)
	MULADD(192(R14), Z7)
	CMPQ    R9, $10
	JEQ     tail10
	FOUR17

tail10:
	NINE17
	LAST(Z25, Z26, Z27, Z28)
	TAGEND
	VMOVDQU8 Z0, K1, (DI)
	VMOVDQU8 Z1, K2, 64(DI)
	VMOVDQU8 Z2, K3, 128(DI)
	VMOVDQU8 Z3, K4, 192(DI)
	JMP      finish

short:
	CMPQ R9, $10
	JEQ  short10
	FOUR5

short10:
	NINE5
	VBROADCASTI32X4 160(R13), Z8
	VPXORQ          Z25, Z8, Z12
	VAESENCLAST     Z12, Z0, Z0
	TAGEND
	VMOVDQU8        Z0, K1, (DI)

finish:
	MOVQ      src_len+40(FP), AX
	FINISH(aad_len+72(FP))
	MOVQ      tag+88(FP), AX
	VMOVDQU64 X24, (AX)
	CLEAR
	RET
