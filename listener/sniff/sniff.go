// Package sniff tells what a client speaks from its first bytes: TLS with its
// server name and ALPN offer, or which HTTP. It consumes nothing, holds nothing
// and does no I/O; listener calls it with all bytes so far, again and again
// until the verdict isn't More. It prefers to call doubtful bytes "not mine": the
// raw chain then gets every one of them.
package sniff

// Verdict is what the bytes so far allow to say.
type Verdict uint8

// The verdicts.
const (
	More Verdict = iota // too few bytes to tell
	Yes
	No
	TooLarge // could still be it, but is longer than allowed: close
	Bad      // it is, but broken: close
)

func (v Verdict) String() string {
	return [...]string{"more", "yes", "no", "too large", "bad"}[v]
}
