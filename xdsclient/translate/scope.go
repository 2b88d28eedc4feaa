package translate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/internal/config"
)

// maxProblems bounds an error's text: more are counted only, for a server
// keeps what it is sent in its logs.
const maxProblems = 8

// maxProblemText bounds one line of an error, which may quote bad input.
const maxProblemText = 512

// problems collects what is wrong with one resource.
type problems struct {
	lines []string
	more  int
	// malformed is set when the message itself is broken.
	malformed bool
}

func (p *problems) add(line string) {
	if len(p.lines) >= maxProblems {
		p.more++
		return
	}
	if len(line) > maxProblemText {
		line = line[:maxProblemText] + "..."
	}
	p.lines = append(p.lines, strings.ToValidUTF8(line, "\uFFFD"))
}

// err gives everything as one error, nil when nothing was wrong.
func (p *problems) err() error {
	if len(p.lines) == 0 {
		return nil
	}
	text := strings.Join(p.lines, "; ")
	if p.more > 0 {
		text += fmt.Sprintf("; and %d more", p.more)
	}
	return errors.New(text)
}

// scope is a place inside a resource. What is wrong at it is noted with its
// path; translation goes on, so that one answer names every fault.
type scope struct {
	r    *Registry
	path string
	out  *problems
}

func (r *Registry) scope(path string) scope { return scope{r: r, path: path, out: &problems{}} }

func (s scope) at(field string) scope {
	if s.path == "" {
		s.path = field
	} else {
		s.path += "." + field
	}
	return s
}

func (s scope) index(field string, i int) scope {
	return s.at(field + "[" + strconv.Itoa(i) + "]")
}

func (s scope) bad(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.path != "" {
		text = s.path + ": " + text
	}
	s.out.add(text)
}

// unsupported notes a known field that would change routing or security if it
// were ignored.
func (s scope) unsupported(set bool, field, why string) {
	if set {
		s.at(field).bad("not supported yet: %s", why)
	}
}

// duration converts d, absent giving def. Envoy refuses negative ones.
func (s scope) duration(field string, d *durationpb.Duration, def time.Duration) time.Duration {
	if d == nil {
		return def
	}
	if err := d.CheckValid(); err != nil {
		s.at(field).bad("invalid duration: %v", err)
		return def
	}
	if d.Seconds < 0 || d.Nanos < 0 {
		s.at(field).bad("negative duration %v", d.AsDuration())
		return def
	}
	return d.AsDuration()
}

// optional is duration for fields whose absence means something of its own.
func (s scope) optional(field string, d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	v := s.duration(field, d, 0)
	return &v
}

func u32(v *wrapperspb.UInt32Value, def uint32) uint32 {
	if v == nil {
		return def
	}
	return v.Value
}

func boolean(v *wrapperspb.BoolValue, def bool) bool {
	if v == nil {
		return def
	}
	return v.Value
}

// capped turns a uint32 setting into an int that can't overflow on 32 bits.
func capped(v uint32) int {
	if v > 1<<31-1 {
		return 1<<31 - 1
	}
	return int(v)
}

func fraction(p *typev3.FractionalPercent) config.Percent {
	var unit uint64
	switch p.GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
		unit = 10000
	case typev3.FractionalPercent_TEN_THOUSAND:
		unit = 100
	default:
		unit = 1
	}
	return config.Percent{PerMillion: uint32(min(uint64(p.GetNumerator())*unit, 1000000))}
}

func percent(p *typev3.Percent, def float64) config.Percent {
	v := def
	if p != nil {
		v = p.Value
	}
	return config.Percent{PerMillion: uint32(max(0, min(v, 100)) * 10000)}
}

func percentValue(p *typev3.Percent, def float64) float64 {
	if p == nil {
		return def
	}
	return p.Value
}
