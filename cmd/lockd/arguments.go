package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// noCommand is the action of a command that only has subcommands, when none of these is named.
func noCommand(_ context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usage(cmd, "there is no command %q", cmd.Args().First())
	}
	return usage(cmd, "no command is given")
}

// operands returns the arguments of a command, of which there have to be at least least and at most
// most.
func operands(cmd *cli.Command, least, most int) ([]string, error) {
	args := cmd.Args().Slice()
	name := nameOf(cmd)
	switch {
	case len(args) < least:
		return nil, usage(cmd, "%s: an argument is missing, of: %s", name, cmd.ArgsUsage)
	case len(args) > most && most == 0:
		return nil, usage(cmd, "%s: %q is one argument too many: it takes none but options", name,
			args[0])
	case len(args) > most:
		return nil, usage(cmd, "%s: %q is one argument too many, after: %s", name, args[most],
			cmd.ArgsUsage)
	}
	return args, nil
}

// paths returns the operands of a command that all name files.
func paths(cmd *cli.Command, least, most int) ([]string, error) {
	args, err := operands(cmd, least, most)
	if err == nil {
		err = noneEmpty(cmd, args)
	}
	return args, err
}

// noneEmpty refuses an empty name of a file, which comes of an unset variable.
func noneEmpty(cmd *cli.Command, args []string) error {
	if slices.Contains(args, "") {
		return usage(cmd, "%s: an argument is empty, of: %s", nameOf(cmd), cmd.ArgsUsage)
	}
	return nil
}

// nameOf returns the words that name a command.
func nameOf(cmd *cli.Command) string { return strings.Join(cmd.Path()[1:], " ") }

// wrongValue matches the error of package flag for a value that the flag does not take.
var wrongValue = regexp.MustCompile(`^invalid value (".*") for flag -([^ :]+): `)

// explained replaces the parser's text, which is for programmers, with what the flag takes.
func explained(cmd *cli.Command, err error) error {
	match := wrongValue.FindStringSubmatch(err.Error())
	if match == nil {
		return err
	}
	name := "--" + match[2]
	if len(match[2]) == 1 {
		name = "-" + match[2]
	}
	for _, f := range cmd.Flags {
		if !slices.Contains(f.Names(), match[2]) {
			continue
		}
		switch f.(type) {
		case *cli.Uint64Flag:
			return fmt.Errorf("%s %s is not a whole number from 0 to %d", name, match[1],
				uint64(math.MaxUint64))
		case *cli.IntFlag:
			return fmt.Errorf("%s %s is not a whole number", name, match[1])
		case *cli.DurationFlag:
			return fmt.Errorf("%s %s is not a time with its unit, such as 500ms, 30s or 1m30s",
				name, match[1])
		case *cli.BoolFlag:
			return fmt.Errorf("%s %s is neither true nor false", name, match[1])
		}
	}
	return err
}
