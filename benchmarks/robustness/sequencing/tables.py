"""Expressions of a matrix ``{A}``: what is compared, and what makes another matrix of it."""

from typing import Final

OBSERVATIONS: Final = """
{A}.toarray()
{A}.toarray(order='F')
{A}.toarray().shape
{A}.nnz
{A}.shape
{A}.dtype
{A}.format
{A}.copy()
{A}.T
{A}.T.T
{A}.tocoo()
{A}.tocsr()
{A}.tocsc()
{A}.tobsr()
{A}.tolil()
{A}.todok()
{A}.asformat('csc')
{A}.astype('float32')
{A}.astype('float64', copy=False)
{A}.diagonal()
{A}.conj()
{A}.real
{A}.count_nonzero()
{A}.nonzero()
{A}.max()
{A}.maximum(0)
{A}.sign()
{A}.power(2)
{A}.reshape({A}.shape[::-1])
{A} @ 2
{A} == 0
abs({A})
bool({A})
len({A})
repr({A})
str({A})
hasattr({A}, 'foo')
SP.hstack([{A}, {A}])
SP.vstack([{A}, {A}]).format
SP.issparse({A})
isinstance({A}, SP.csr_array)
SP.linalg.norm({A}.T.T.copy()) >= 0
""".strip().splitlines()

DERIVATIONS: Final = """
{A}.T
{A}.T
{A}.T
{A}.copy()
copied({A})
copy.deepcopy({A})
{A}.tocsr()
{A}.tocsr(copy=True)
{A}.tocsc()
{A}.tocoo()
{A}.tobsr()
{A}.todia().tocsr()
{A}.T.tocsr()
{A}.transpose()
{A}.asformat('csr')
{A}.astype('float32')
{A}.astype('float64')
{A}.real
{A}.conj()
{A} * 2
S.csr_array({A})
S.csr_array({A}, copy=True)
S.csr_matrix({A}, dtype='float32')
S.csc_matrix({A})
SP.csr_array({A})
asarray(copied({A}))
freeze({A})
freeze({A})
""".strip().splitlines()
