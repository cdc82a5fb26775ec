package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"
)

var (
	// errUsage is returned when the command line is wrong.
	errUsage = errors.New("wrong command line")

	// errNotFound is returned when the server does not have what was asked for.
	errNotFound = errors.New("not found")

	// errConflict is returned when a write was not done because the key was not as it required.
	errConflict = errors.New("conflict")
)

// usage returns an error that is errUsage, with a text, and names the command whose help to read.
func usage(cmd *cli.Command, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), cmd.FullName()}
}

// usageError is an error in the command line of one command.
type usageError struct {
	err     error
	command string
}

// Error returns the text.
func (e *usageError) Error() string { return e.err.Error() + "; see " + e.command + " --help" }

// Is reports whether the target is errUsage.
func (e *usageError) Is(target error) bool { return target == errUsage }

// Unwrap returns the cause.
func (e *usageError) Unwrap() error { return e.err }
