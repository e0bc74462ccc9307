"""sizes: integers and floats that are known at run time only, and all that is known of them.

One vocabulary for every stage; docs/sizes.md tells how the parts work together.

expressions  a *symbol* is an unknown integer, an *expression* what is computed of symbols,
             a `SizeInt` an int of the fakes that carries its expression
facts        a *fact* is a comparison that compiled code relies on, and a guard checks
samples      a *sample* is the integer that stands for a symbol in the fakes
table        the *table* reads integers in shapes as expressions, and collects facts
view         a frozen copy of a table, handed on with a graph
formulas     sizes of results that are no products of sizes of inputs, one row per op
floats       *open floats*, which have no expressions
plan         a *plan* says which *places* of a frame are open, and survives its attempts
refusals     a *refusal* says why an attempt cannot continue with the sizes as they are
history      which places of a code object have had several values
marks        what users say about sizes
"""
