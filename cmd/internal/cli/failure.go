package cli

import (
	"errors"
	"fmt"

	"relay/db/relay"
)

// An Exit is an error that carries an exit code; its message has been printed.
type Exit int

const (
	exitOK           = 0
	ExitFailure Exit = 1
	exitUsage        = 2
	exitTimeUp       = 3
)

func (e Exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// usageError is a mistake in the arguments.
type usageError struct{ error }

// Usagef makes an error that says how a command is used wrongly.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// UsageFails annotates a command that exits with code 1 when it is used wrongly, since code 2 means something
// else.
const UsageFails = "wrong usage fails"

// timeoutError marks a wait that timed out.
type timeoutError struct{ error }

// TimedOut makes err end the command with the exit code of a wait that timed out.
func TimedOut(err error) error { return timeoutError{err} }

// Plain reduces a refusal of the store to its message. An invalid address is wrong usage.
func Plain(err error) error {
	var e *relay.Error
	if !errors.As(err, &e) || e.Cause != nil {
		return err
	}
	if e.Code == relay.InvalidAddress || e.Code == relay.InvalidRequest {
		return Usagef("%s", e.Detail)
	}
	return &sentence{e.Code, e.Detail}
}

// A coded error knows the API's code of a refusal, which its text may leave out.
type coded interface {
	error
	APICode() relay.Code
}

// sentence is a refusal that prints without its code; explain reads the code.
type sentence struct {
	code relay.Code
	text string
}

func (s *sentence) Error() string       { return s.text }
func (s *sentence) APICode() relay.Code { return s.code }

// codeOf returns the API's code of an error, "" if it has none.
func codeOf(err error) relay.Code {
	var c coded
	var e *relay.Error
	switch {
	case errors.As(err, &c):
		return c.APICode()
	case errors.As(err, &e):
		return e.Code
	}
	return ""
}
