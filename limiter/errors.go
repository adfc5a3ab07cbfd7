package limiter

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalidConfig is wrapped by the error of [New], [Limiter.SetOverrides]
	// and [ConfigFromEnv] for values that cannot be used. The error's text names
	// every bad value and what it should be.
	ErrInvalidConfig = errors.New("limiter: invalid config")
	// ErrClosed is returned by [Limiter.Tick] and [Limiter.Flush] after Shutdown
	// or Close.
	ErrClosed = errors.New("limiter: closed")
)

// UnsentError says what [Limiter.Shutdown] could not deliver.
type UnsentError struct {
	// Events is how many admitted events never reached the store.
	Events int64
	// Unknown is how many were sent without a reply: they may have arrived.
	Unknown int64
	// Err is the store's last error, or that of the context.
	Err error
}

// Error implements error.
func (e *UnsentError) Error() string {
	return fmt.Sprintf("limiter: shutdown left %d events unsent and %d in doubt: %v", e.Events, e.Unknown, e.Err)
}

// Unwrap returns e.Err.
func (e *UnsentError) Unwrap() error { return e.Err }
