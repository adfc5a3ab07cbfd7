package store

import (
	"errors"
	"strconv"

	"github.com/fleetlimit/fleetlimit/limiter"
)

// Op is what a [Command] has the server do.
type Op uint8

const (
	// OpCreate is SET name 0 PX arg NX: it creates a counter that expires in arg
	// milliseconds, unless it exists.
	OpCreate Op = iota
	// OpIncrBy is INCRBY name arg.
	OpIncrBy
	// OpPExpire is PEXPIRE name arg, with arg in milliseconds.
	OpPExpire
	// OpGet is GET name.
	OpGet
)

// Command is one command of a pipeline, and what became of it. A [Sender] reads
// the exported fields, and reports what became of the command by calling one of
// the methods.
type Command struct {
	// Op is what to do.
	Op Op
	// Name is the name of the counter. It may be kept.
	Name string
	// Arg is the argument, 0 for [OpGet].
	Arg int64

	target  int // the operation of the batch that gets the result, or noTarget
	outcome limiter.Outcome
	replied bool // whether anything came back from the server
	value   int64
	kind    string // of err
	err     error  // nil if outcome is Applied
}

// noTarget is the target of a command whose result no operation waits for.
const noTarget = -1

var (
	errNotACount = errors.New("the value is not a count")
	errBadReply  = errors.New("the reply has an unexpected type")
)

// ReplyInt says that the server replied with the integer v.
func (c *Command) ReplyInt(v int64) {
	switch {
	case c.Op == OpCreate:
		c.BadReply()
	case c.Op == OpIncrBy && v < c.Arg, c.Op == OpGet && v < 0:
		// Somebody else's number, or nonsense. An add may well have been performed
		// on it, but no total comes of that.
		c.fail(limiter.Unknown, kindProtocol, errNotACount)
	default:
		c.value = v
		c.outcome = limiter.Applied
	}
	c.replied = true
}

// ReplyText says that the server replied with the string s.
func (c *Command) ReplyText(s string) {
	switch c.Op {
	case OpCreate:
		c.outcome = limiter.Applied
		c.replied = true
	case OpGet:
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			v = -1
		}
		c.ReplyInt(v)
	default:
		c.BadReply()
	}
}

// ReplyNil says that the server replied with nil: a counter to be read does not
// exist, or one to be created does.
func (c *Command) ReplyNil() {
	switch c.Op {
	case OpCreate, OpGet:
		c.outcome = limiter.Applied
		c.replied = true
	default:
		c.BadReply()
	}
}

// BadReply says that the server replied with something that is no answer to the
// command.
func (c *Command) BadReply() {
	c.fail(limiter.Unknown, kindProtocol, errBadReply)
	c.replied = true
}

// Refuse says that the server replied with an error, and so did not perform the
// command.
func (c *Command) Refuse(err error) {
	c.fail(limiter.NotApplied, kindOfReply(err), err)
	c.replied = true
}

// Reject says that the server did not let the client in, so that the command was
// not sent.
func (c *Command) Reject(err error) {
	c.fail(limiter.NotApplied, kindOfReply(err), err)
}

// NotSent says that the command was certainly not sent, for a reason on this side.
func (c *Command) NotSent(err error) {
	kind := kindOf(err)
	if kind == kindProtocol {
		kind = kindClosed
	}
	c.fail(limiter.NotApplied, kind, err)
}

// Lose says that there is no reply and that err is all that is known. Unless err
// is that of a dial, the command may have been performed.
func (c *Command) Lose(err error) {
	kind := kindOf(err)
	if kind == kindDial {
		c.fail(limiter.NotApplied, kind, err)
		return
	}
	c.fail(limiter.Unknown, kind, err)
}

func (c *Command) fail(o limiter.Outcome, kind string, err error) {
	c.outcome, c.kind, c.err = o, kind, err
}
