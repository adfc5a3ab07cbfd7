package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// The kinds of failure, as in [limiter.ServerReport].
const (
	kindDial     = "dial"     // no connection
	kindTimeout  = "timeout"  // no reply in time
	kindCanceled = "canceled" // the caller gave up
	kindClosed   = "closed"   // the connection or the client was closed
	kindAuth     = "auth"     // the server does not let this client do it
	kindRefused  = "refused"  // the server replied with another error
	kindProtocol = "protocol" // the reply makes no sense
	kindInvalid  = "invalid"  // the operation makes no sense
)

// kindOf classifies the error of a command that got no reply.
func kindOf(err error) string {
	var op *net.OpError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return kindDial
	case errors.Is(err, context.Canceled):
		return kindCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return kindTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return kindClosed
	default:
		return kindProtocol
	}
}

// kindOfReply classifies an error that a server replied with.
func kindOfReply(err error) string {
	code, _, _ := strings.Cut(err.Error(), " ")
	switch code {
	case "NOAUTH", "WRONGPASS", "NOPERM":
		return kindAuth
	default:
		return kindRefused
	}
}

// failure is why operations failed. Its text is fit for a log, whatever the error
// of the client says; the latter can be had by unwrapping.
type failure struct {
	kind string
	text string
	err  error
}

func newFailure(kind string, err error, prefix string) *failure {
	return &failure{kind: kind, text: publicText(err.Error(), prefix), err: err}
}

func (f *failure) Error() string {
	if f.text == "" {
		return f.kind
	}
	return f.kind + ": " + f.text
}

func (f *failure) Unwrap() error { return f.err }

// Is makes any timeout a [context.DeadlineExceeded], whichever way the client
// puts it.
func (f *failure) Is(target error) bool {
	return target == context.DeadlineExceeded && f.kind == kindTimeout
}

// maxText bounds how much of an error's text is shown.
const maxText = 120

// publicText returns of an error's text what can be shown. Servers quote what they
// were sent, which can be a key or, from one that does not know the command, a
// password: so the text ends at the first quote, and at anything that is not
// readable. Nothing is left of one that names a counter or that looks like an
// address with credentials.
func publicText(text, prefix string) string {
	if strings.Contains(text, prefix+":") || strings.Contains(text, "@") {
		return ""
	}
	end := strings.IndexFunc(text, func(r rune) bool {
		return r == '\'' || r == '"' || r == '`' || r < ' ' || r > '~'
	})
	if end >= 0 {
		text = text[:end]
	}
	return strings.TrimRight(text[:min(len(text), maxText)], " :,")
}

// exchangeError is the error of an exchange.
type exchangeError struct {
	pkg           string
	failed, total int
	failures      []*failure // the first of each kind
}

func (e *exchangeError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %d of %d operations", e.pkg, e.failed, e.total)
	sep := ": "
	for _, f := range e.failures {
		s.WriteString(sep)
		s.WriteString(f.Error())
		sep = "; "
	}
	return s.String()
}

func (e *exchangeError) Unwrap() []error {
	errs := make([]error, len(e.failures))
	for i, f := range e.failures {
		errs[i] = f
	}
	return errs
}

// countFailed returns how many operations of b did not succeed.
func countFailed(b *limiter.Batch) int {
	n := 0
	for i := range b.Adds {
		if b.Adds[i].Outcome != limiter.Applied {
			n++
		}
	}
	for i := range b.Expires {
		if b.Expires[i].Outcome != limiter.Applied {
			n++
		}
	}
	for i := range b.Gets {
		if !b.Gets[i].OK {
			n++
		}
	}
	return n
}
