//go:build amd64 && !purego

#include "textflag.h"

// A number modulo a prime is twenty limbs in three registers: eight, eight and
// four, the lanes above are zero. Both primes are in work at once: a round waits
// for a product, for that product's lowest lane times -1/m, and for the product of
// this and m; meanwhile the other prime's round goes on.
//
//	        first    second
//	X       Z0-Y2    Z12-Y14  the factor x
//	M       Z3-Y5    Z15-Y17  the modulus
//	S       Z6-Y8    Z18-Y20  the sum
//	T       Z9-Y11   Z21-Y23  what is added to the sum after its lowest limb is dropped
//	Q       Z24      Z25      the multiple of m
//	B       Z26      Z27      a limb of y
//	        X28      X29      -1/m modulo 2^52
//	Z30     a carry; the mask of a limb when carries are settled
//	Z31     zero
//	K1      the lowest lane alone
//
//	SI DI R8  the factor y, z, the moduli
#define PRIME 160
#define OFFINVERSE 320

DATA limb<>+0(SB)/8, $0x000fffffffffffff
GLOBL limb<>(SB), RODATA|NOPTR, $8

// SETUP loads the moduli.
#define SETUP \
	VMOVDQU64 (R8), Z3; \
	VMOVDQU64 64(R8), Z4; \
	VMOVDQU64 128(R8), Y5; \
	VMOVDQU64 PRIME(R8), Z15; \
	VMOVDQU64 (PRIME+64)(R8), Z16; \
	VMOVDQU64 (PRIME+128)(R8), Y17; \
	VMOVQ     OFFINVERSE(R8), X28; \
	VMOVQ     (OFFINVERSE+8)(R8), X29; \
	VPXORQ    Z31, Z31, Z31; \
	MOVQ      $1, AX; \
	KMOVB     AX, K1

// FACTOR loads the factor x from (AX).
#define FACTOR \
	VMOVDQU64 (AX), Z0; \
	VMOVDQU64 64(AX), Z1; \
	VMOVDQU64 128(AX), Y2; \
	VMOVDQU64 PRIME(AX), Z12; \
	VMOVDQU64 (PRIME+64)(AX), Z13; \
	VMOVDQU64 (PRIME+128)(AX), Y14

// STORE writes both sums to (DI).
#define STORE \
	VMOVDQU64 Z6, (DI); \
	VMOVDQU64 Z7, 64(DI); \
	VMOVDQU64 Y8, 128(DI); \
	VMOVDQU64 Z18, PRIME(DI); \
	VMOVDQU64 Z19, (PRIME+64)(DI); \
	VMOVDQU64 Y20, (PRIME+128)(DI)

// LOW and HIGH add the halves of the products of A and the limb B to C.
#define LOW(A0, A1, A2, B, BY, C0, C1, C2) \
	VPMADD52LUQ B, A0, C0; \
	VPMADD52LUQ B, A1, C1; \
	VPMADD52LUQ BY, A2, C2

#define HIGH(A0, A1, A2, B, BY, C0, C1, C2) \
	VPMADD52HUQ B, A0, C0; \
	VPMADD52HUQ B, A1, C1; \
	VPMADD52HUQ BY, A2, C2

#define ZERO(C0, C1, C2) \
	VPXORQ C0, C0, C0; \
	VPXORQ C1, C1, C1; \
	VPXORQ C2, C2, C2

// MULTIPLE makes every lane of Q what m is to be added times: the sum's lowest limb
// times -1/m. IFMA takes the lower 52 bits of a lane, whatever is above.
#define MULTIPLE(S0X, INVERSE, QX, Q) \
	VPXORQ       QX, QX, QX; \
	VPMADD52LUQ  INVERSE, S0X, QX; \
	VPBROADCASTQ QX, Q

// DROP ends a round: the lowest limb, which is zero but for its carry, leaves the
// sum, and T comes in.
#define DROP(S0, S1, S2, S2Z, T0, T1, T2) \
	VPSRLQ  $52, S0, Z30; \
	VPADDQ  Z30, T0, K1, T0; \
	VALIGNQ $1, S0, S1, S0; \
	VALIGNQ $1, S1, S2Z, S1; \
	VALIGNQ $1, S2, Y31, S2; \
	VPADDQ  T0, S0, S0; \
	VPADDQ  T1, S1, S1; \
	VPADDQ  T2, S2, S2

// A round is BEGIN and END, with the low products of the limb in B in the sum. Those
// of the next limb are added between, so that they don't wait for Q.
#define BEGIN \
	MULTIPLE(X6, X28, X24, Z24); \
	MULTIPLE(X18, X29, X25, Z25); \
	ZERO(Z9, Z10, Y11); \
	ZERO(Z21, Z22, Y23); \
	HIGH(Z0, Z1, Y2, Z26, Y26, Z9, Z10, Y11); \
	HIGH(Z12, Z13, Y14, Z27, Y27, Z21, Z22, Y23)

#define END \
	LOW(Z3, Z4, Y5, Z24, Y24, Z6, Z7, Y8); \
	LOW(Z15, Z16, Y17, Z25, Y25, Z18, Z19, Y20); \
	HIGH(Z3, Z4, Y5, Z24, Y24, Z9, Z10, Y11); \
	HIGH(Z15, Z16, Y17, Z25, Y25, Z21, Z22, Y23); \
	DROP(Z6, Z7, Y8, Z8, Z9, Z10, Y11); \
	DROP(Z18, Z19, Y20, Z20, Z21, Z22, Y23)

// MONTGOMERY is the whole multiplication. LOOP is a label.
#define MONTGOMERY(LOOP) \
	ZERO(Z6, Z7, Y8); \
	ZERO(Z18, Z19, Y20); \
	VPBROADCASTQ (SI), Z26; \
	VPBROADCASTQ PRIME(SI), Z27; \
	LOW(Z0, Z1, Y2, Z26, Y26, Z6, Z7, Y8); \
	LOW(Z12, Z13, Y14, Z27, Y27, Z18, Z19, Y20); \
	MOVQ         $1, CX; \
LOOP: \
	BEGIN; \
	VPBROADCASTQ (SI)(CX*8), Z26; \
	VPBROADCASTQ PRIME(SI)(CX*8), Z27; \
	LOW(Z0, Z1, Y2, Z26, Y26, Z9, Z10, Y11); \
	LOW(Z12, Z13, Y14, Z27, Y27, Z21, Z22, Y23); \
	END; \
	INCQ         CX; \
	CMPQ         CX, $20; \
	JNE          LOOP; \
	BEGIN; \
	END; \
	VPBROADCASTQ limb<>(SB), Z30; \
	SETTLE(Z6, Z7, Z8, Z9, Z10, Z11); \
	SETTLE(Z18, Z19, Z20, Z21, Z22, Z23)

// SETTLE brings the limbs of a sum below 2^52. First each carry goes one limb up;
// what is left there is at most a carry of one. A limb of more than 2^52-1 gives
// one, and a limb of exactly that gives one if it gets one: so does a bit in the sum
// of two binary numbers, and one addition settles all. AX has a bit for each limb
// that gives, DX one for each that passes. Adding one is taking 2^52-1 off, and the mask.
#define SETTLE(S0, S1, S2, T0, T1, T2) \
	VPSRLQ  $52, S0, T0; \
	VPSRLQ  $52, S1, T1; \
	VPSRLQ  $52, S2, T2; \
	VPANDQ  Z30, S0, S0; \
	VPANDQ  Z30, S1, S1; \
	VPANDQ  Z30, S2, S2; \
	VALIGNQ $7, T1, T2, T2; \
	VALIGNQ $7, T0, T1, T1; \
	VALIGNQ $7, Z31, T0, T0; \
	VPADDQ  T0, S0, S0; \
	VPADDQ  T1, S1, S1; \
	VPADDQ  T2, S2, S2; \
	VPCMPUQ $6, Z30, S0, K2; \
	VPCMPUQ $6, Z30, S1, K3; \
	VPCMPUQ $6, Z30, S2, K4; \
	VPCMPUQ $0, Z30, S0, K5; \
	VPCMPUQ $0, Z30, S1, K6; \
	VPCMPUQ $0, Z30, S2, K7; \
	JOIN(K2, K3, K4, AX); \
	JOIN(K5, K6, K7, DX); \
	LEAQ    (DX)(AX*2), AX; \
	XORQ    DX, AX; \
	KMOVB   AX, K2; \
	SHRQ    $8, AX; \
	KMOVB   AX, K3; \
	SHRQ    $8, AX; \
	KMOVB   AX, K4; \
	VPSUBQ  Z30, S0, K2, S0; \
	VPSUBQ  Z30, S1, K3, S1; \
	VPSUBQ  Z30, S2, K4, S2; \
	VPANDQ  Z30, S0, S0; \
	VPANDQ  Z30, S1, S1; \
	VPANDQ  Z30, S2, S2

// JOIN puts the bits of three masks beside each other.
#define JOIN(KA, KB, KC, R) \
	KMOVB KA, R; \
	KMOVB KB, R9; \
	KMOVB KC, R10; \
	SHLQ  $8, R9; \
	SHLQ  $16, R10; \
	ORQ   R9, R; \
	ORQ   R10, R

// func multiply(z, x, y *pair, m *moduli)
TEXT ·multiply(SB), NOSPLIT, $0-32
	MOVQ z+0(FP), DI
	MOVQ x+8(FP), AX
	MOVQ y+16(FP), SI
	MOVQ m+24(FP), R8
	FACTOR
	SETUP
	MONTGOMERY(multiplyLoop)
	STORE
	VZEROUPPER
	RET

// func square(z *pair, m *moduli, n int)
TEXT ·square(SB), NOSPLIT, $0-24
	MOVQ z+0(FP), DI
	MOVQ m+8(FP), R8
	MOVQ n+16(FP), R11
	MOVQ DI, AX
	MOVQ DI, SI
	FACTOR
	SETUP

squareNext:
	MONTGOMERY(squareLoop)
	STORE
	VMOVDQA64 Z6, Z0
	VMOVDQA64 Z7, Z1
	VMOVDQA64 Z8, Z2
	VMOVDQA64 Z18, Z12
	VMOVDQA64 Z19, Z13
	VMOVDQA64 Z20, Z14
	DECQ      R11
	JNE       squareNext
	VZEROUPPER
	RET

// KEEP adds a half of the table's entry at (SI) to C where the mask M is ones.
#define KEEP(OFF, M, MY, C0, C1, C2) \
	VPTERNLOGQ $0xf8, OFF(SI), M, C0; \
	VPTERNLOGQ $0xf8, (OFF+64)(SI), M, C1; \
	VPTERNLOGQ $0xf8, (OFF+128)(SI), MY, C2

// func pick(z *pair, table *[32]pair, i, j uint64)
TEXT ·pick(SB), NOSPLIT, $0-32
	MOVQ         z+0(FP), DI
	MOVQ         table+8(FP), SI
	VPBROADCASTQ i+16(FP), Z24
	VPBROADCASTQ j+24(FP), Z25
	MOVQ         $1, AX
	VPBROADCASTQ AX, Z26
	VPXORQ       Z27, Z27, Z27 // the entry's index
	ZERO(Z6, Z7, Y8)
	ZERO(Z18, Z19, Y20)
	MOVQ         $32, CX

pickLoop:
	VPCMPEQQ     Z24, Z27, K1
	VPCMPEQQ     Z25, Z27, K2
	VPTERNLOGQ.Z $0xff, Z28, Z28, K1, Z28
	VPTERNLOGQ.Z $0xff, Z29, Z29, K2, Z29
	KEEP(0, Z28, Y28, Z6, Z7, Y8)
	KEEP(PRIME, Z29, Y29, Z18, Z19, Y20)
	VPADDQ       Z26, Z27, Z27
	ADDQ         $(2*PRIME), SI
	DECQ         CX
	JNE          pickLoop
	STORE
	VZEROUPPER
	RET

// A number modulo the key's modulus is forty limbs in five registers: the factor in
// Z0-Z4, the modulus in Z5-Z9, S in Z10-Z14, T in Z15-Z19, Q in Z20, B in Z21, -1/m in
// X22; the rest is as above.

#define LOW5(A0, A1, A2, A3, A4, B, C0, C1, C2, C3, C4) \
	VPMADD52LUQ B, A0, C0; \
	VPMADD52LUQ B, A1, C1; \
	VPMADD52LUQ B, A2, C2; \
	VPMADD52LUQ B, A3, C3; \
	VPMADD52LUQ B, A4, C4

#define HIGH5(A0, A1, A2, A3, A4, B, C0, C1, C2, C3, C4) \
	VPMADD52HUQ B, A0, C0; \
	VPMADD52HUQ B, A1, C1; \
	VPMADD52HUQ B, A2, C2; \
	VPMADD52HUQ B, A3, C3; \
	VPMADD52HUQ B, A4, C4

#define ADD5 \
	VPADDQ Z15, Z10, Z10; \
	VPADDQ Z16, Z11, Z11; \
	VPADDQ Z17, Z12, Z12; \
	VPADDQ Z18, Z13, Z13; \
	VPADDQ Z19, Z14, Z14

#define MASK5 \
	VPANDQ Z30, Z10, Z10; \
	VPANDQ Z30, Z11, Z11; \
	VPANDQ Z30, Z12, Z12; \
	VPANDQ Z30, Z13, Z13; \
	VPANDQ Z30, Z14, Z14

#define BEGIN5 \
	MULTIPLE(X10, X22, X20, Z20); \
	ZERO(Z15, Z16, Z17); \
	ZERO(Z18, Z19, Z19); \
	HIGH5(Z0, Z1, Z2, Z3, Z4, Z21, Z15, Z16, Z17, Z18, Z19)

#define END5 \
	LOW5(Z5, Z6, Z7, Z8, Z9, Z20, Z10, Z11, Z12, Z13, Z14); \
	HIGH5(Z5, Z6, Z7, Z8, Z9, Z20, Z15, Z16, Z17, Z18, Z19); \
	VPSRLQ  $52, Z10, Z30; \
	VPADDQ  Z30, Z15, K1, Z15; \
	VALIGNQ $1, Z10, Z11, Z10; \
	VALIGNQ $1, Z11, Z12, Z11; \
	VALIGNQ $1, Z12, Z13, Z12; \
	VALIGNQ $1, Z13, Z14, Z13; \
	VALIGNQ $1, Z14, Z31, Z14; \
	ADD5

// COMPARE5 makes bits in R of the limbs for which OP holds against 2^52-1.
#define COMPARE5(OP, R) \
	VPCMPUQ  OP, Z30, Z10, K2; \
	VPCMPUQ  OP, Z30, Z11, K3; \
	VPCMPUQ  OP, Z30, Z12, K4; \
	VPCMPUQ  OP, Z30, Z13, K5; \
	VPCMPUQ  OP, Z30, Z14, K6; \
	KUNPCKBW K2, K3, K2; \
	KUNPCKBW K4, K5, K4; \
	KUNPCKWD K2, K4, K2; \
	KMOVD    K2, R; \
	KMOVB    K6, R9; \
	SHLQ     $32, R9; \
	ORQ      R9, R

// CARRY5 adds one to the limbs of S that have a bit in AX, and goes on to the next.
#define CARRY5(S) \
	KMOVB  AX, K2; \
	VPSUBQ Z30, S, K2, S; \
	SHRQ   $8, AX

// func multiplyWide(z, x, y *wide, m *modulus)
TEXT ·multiplyWide(SB), NOSPLIT, $0-32
	MOVQ         z+0(FP), DI
	MOVQ         x+8(FP), AX
	MOVQ         y+16(FP), SI
	MOVQ         m+24(FP), R8
	VMOVDQU64    (AX), Z0
	VMOVDQU64    64(AX), Z1
	VMOVDQU64    128(AX), Z2
	VMOVDQU64    192(AX), Z3
	VMOVDQU64    256(AX), Z4
	VMOVDQU64    (R8), Z5
	VMOVDQU64    64(R8), Z6
	VMOVDQU64    128(R8), Z7
	VMOVDQU64    192(R8), Z8
	VMOVDQU64    256(R8), Z9
	VMOVQ        OFFINVERSE(R8), X22
	VPXORQ       Z31, Z31, Z31
	MOVQ         $1, AX
	KMOVB        AX, K1
	ZERO(Z10, Z11, Z12)
	ZERO(Z13, Z14, Z14)
	VPBROADCASTQ (SI), Z21
	LOW5(Z0, Z1, Z2, Z3, Z4, Z21, Z10, Z11, Z12, Z13, Z14)
	MOVQ         $1, CX

wideLoop:
	BEGIN5
	VPBROADCASTQ (SI)(CX*8), Z21
	LOW5(Z0, Z1, Z2, Z3, Z4, Z21, Z15, Z16, Z17, Z18, Z19)
	END5
	INCQ         CX
	CMPQ         CX, $40
	JNE          wideLoop
	BEGIN5
	END5

	// As in SETTLE.
	VPBROADCASTQ limb<>(SB), Z30
	VPSRLQ       $52, Z10, Z15
	VPSRLQ       $52, Z11, Z16
	VPSRLQ       $52, Z12, Z17
	VPSRLQ       $52, Z13, Z18
	VPSRLQ       $52, Z14, Z19
	MASK5
	VALIGNQ      $7, Z18, Z19, Z19
	VALIGNQ      $7, Z17, Z18, Z18
	VALIGNQ      $7, Z16, Z17, Z17
	VALIGNQ      $7, Z15, Z16, Z16
	VALIGNQ      $7, Z31, Z15, Z15
	ADD5
	COMPARE5($6, R11)
	COMPARE5($0, DX)
	LEAQ         (DX)(R11*2), AX
	XORQ         DX, AX
	CARRY5(Z10)
	CARRY5(Z11)
	CARRY5(Z12)
	CARRY5(Z13)
	CARRY5(Z14)
	MASK5
	VMOVDQU64    Z10, (DI)
	VMOVDQU64    Z11, 64(DI)
	VMOVDQU64    Z12, 128(DI)
	VMOVDQU64    Z13, 192(DI)
	VMOVDQU64    Z14, 256(DI)
	VZEROUPPER
	RET
