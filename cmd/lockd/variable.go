package main

import (
	"strconv"

	"github.com/urfave/cli/v3"
)

// fromEnv is the value of an environment variable. An empty one counts as not set, as for Consul's
// command.
func fromEnv(name string) cli.ValueSourceChain {
	return cli.NewValueSourceChain(&variable{ValueSource: cli.EnvVar(name), name: name})
}

// fromEnvBool is fromEnv of a variable that says true or false. Any other value is left for the
// command to refuse: the parser's error would not be errUsage.
func fromEnvBool(name string) cli.ValueSourceChain {
	return cli.NewValueSourceChain(&variable{
		ValueSource: cli.EnvVar(name), name: name, parses: isBool,
	})
}

// isBool reports whether the text says true or false.
func isBool(text string) bool {
	_, err := strconv.ParseBool(text)
	return err == nil
}

// variable is an environment variable, for the value of a flag that is not on the command line.
type variable struct {
	cli.ValueSource
	name   string
	parses func(text string) bool // nil: any text does
	value  string                 // empty: there is none, or the command line has the flag
}

var _ cli.EnvValueSource = (*variable)(nil)

// Lookup returns the value, if it is not empty. It is called only if the flag is not on the command
// line.
func (v *variable) Lookup() (string, bool) {
	v.value, _ = v.ValueSource.Lookup()
	return v.value, v.value != "" && (v.parses == nil || v.parses(v.value))
}

// IsFromEnv makes the help show the name.
func (v *variable) IsFromEnv() bool { return true }

// Key returns the name of the variable.
func (v *variable) Key() string { return v.name }

// variableOf returns the variable that is to give a flag its value, nil if the command line does,
// or there is none.
func variableOf(cmd *cli.Command, name string) *variable {
	for _, f := range cmd.Flags {
		var sources []cli.ValueSource
		switch f := f.(type) {
		case *cli.StringFlag:
			sources = f.Sources.Chain
		case *cli.BoolFlag:
			sources = f.Sources.Chain
		}
		for _, source := range sources {
			if v, ok := source.(*variable); ok && f.Names()[0] == name && v.value != "" {
				return v
			}
		}
	}
	return nil
}

// sourceOf returns what gives a flag its value: the flag itself, or a variable.
func sourceOf(cmd *cli.Command, name string) string {
	if v := variableOf(cmd, name); v != nil {
		return v.name
	}
	return "--" + name
}
