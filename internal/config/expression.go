package config

import "regexp"

// Expression is a node of a CEL expression; Op says which members count.
type Expression struct {
	Op     ExpressionOp
	Sub    []Expression
	Text   []byte
	Int    int64
	Float  float64
	Regex  *regexp.Regexp
	Format FormatItem
}

// ExpressionOp is what a node does with its Sub.
type ExpressionOp uint8

// The operators.
const (
	ExprNull  ExpressionOp = iota
	ExprBool               // Int: 0, 1
	ExprInt                // Int
	ExprFloat              // Float
	ExprText               // Text
	ExprList
	ExprAttribute // of the request: a text, Format
	ExprNumber    // the same, a number
	ExprFlags     // response.flags
	ExprMTLS      // connection.mtls
	ExprQuery     // request.query
	ExprError     // an attribute that nobody knows
	ExprRequestHeaders
	ExprResponseHeaders
	ExprResponseTrailers
	ExprDynamic // metadata.filter_metadata
	ExprIndex   // a[b]; Int 1: written a.b
	ExprHas     // has(a.b)
	ExprIn      // a in b
	ExprNot
	ExprMinus
	ExprAnd
	ExprOr
	ExprChoose // a ? b : c
	ExprEqual
	ExprNotEqual
	ExprLess
	ExprLessEqual
	ExprGreater
	ExprGreaterEqual
	ExprAdd
	ExprSubtract
	ExprMultiply
	ExprDivide
	ExprModulo
	ExprSize
	ExprStartsWith
	ExprEndsWith
	ExprContains
	ExprMatches // Regex
	ExprToInt
)
